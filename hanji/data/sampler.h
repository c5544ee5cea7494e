#pragma once

#include <torch/data/samplers/base.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "hanji/plan/choices.h"

namespace hanji::data {

/// What is left of an epoch whose size the ranks do not divide.
enum class Remainder : uint8_t {
  kPad,   ///< The epoch's first samples come again, so that every sample is seen.
  kDrop,  ///< The epoch's last samples wait for another epoch.
};

/// This rank's part of every epoch over a dataset of the user's own, for torch's data loaders.
///
/// Every rank gets equally many indices, and no two ranks the same one unless kPad repeats it.
/// Rank r of n takes positions r, r + n, r + 2n, ... of the epoch's order: together, the ranks'
/// batches of b are the samples of one process with batches of n * b. Nothing is stored per sample,
/// unless the order is kTorch: these are the indices of torch.utils.data.DistributedSampler in Python,
/// with kPad for drop_last=False.
///
/// Copies share their position: a loader's copy follows set_epoch() and load() of the original.
/// A loader that reads ahead is ahead of the samples it has handed out, and so is save().
/// Thread  one at a time, over all copies.
class Sampler : public torch::data::samplers::Sampler<> {
 public:
  /// `ranks` is a World or a Group: whatever knows its rank() and its size(). Ranks that shall see
  /// the same samples, as those along tp, each give the group of one rank per data coordinate:
  /// mesh["dp"].
  /// Errors  throws kInvalidArgument if no index would be left for each rank, kUnsupported for kQuasi.
  template <class Ranks>
  requires requires(const Ranks& ranks) { ranks.rank() + ranks.size(); }
  Sampler(const Ranks& ranks, size_t num_samples, uint64_t seed,
          Remainder remainder = Remainder::kPad,
          plan::SampleOrder order = plan::SampleOrder::kRandom)
      : Sampler(ranks.rank(), ranks.size(), {num_samples, seed, remainder, order}) {}

  /// Another order, from its start. Every rank must choose the same.
  void set_epoch(uint64_t epoch);
  uint64_t epoch() const;
  /// Indices of one rank per epoch.
  size_t size() const;

  /// The epoch from its start; after load(), from where it stood. A loader calls it by begin().
  void reset(std::optional<size_t> num_samples = std::nullopt) override;
  /// Up to `batch_size` indices; none at the end of the epoch.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  /// Seed, epoch and position. Any number of ranks may go on from there if it divides the samples
  /// taken so far.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Errors  throws kMismatch for another dataset size, seed or order, kInvalidArgument for a position
  ///         that these ranks cannot share.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State;
  struct Epochs {
    size_t num_samples;
    uint64_t seed;
    Remainder remainder;
    plan::SampleOrder order;
  };
  Sampler(int rank, int ranks, const Epochs& epochs);
  std::shared_ptr<State> state_;
};

}  // namespace hanji::data
