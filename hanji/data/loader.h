#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layout/range.h"
#include "hanji/plan/choices.h"

namespace hanji::data {

namespace internal {
class EpochOrder;
}

/// Which samples a data coordinate trains on, and in what order: each of its ranks reads them.
struct LoaderOptions {
  uint64_t seed = 0;
  int64_t num_samples = 0;   ///< Training samples of the data set.
  int64_t global_batch = 0;  ///< Samples of one step, over all data coordinates.
  layout::Range share = {};  ///< Of this data coordinate, within every global batch.
  int64_t micro_batch = 0;   ///< Most samples of one forward.
  plan::SampleOrder order = plan::SampleOrder::kRandom;
  plan::EpochEnd epoch_end = plan::EpochEnd::kContinue;
  /// Of kQuasi: the page of each sample, as Source::train_pages() says, and how many it draws from at a
  /// time, at least 2: half of them while the other half is the next.
  std::shared_ptr<const std::vector<uint32_t>> pages = {};
  int64_t open_pages = 64;
  /// Instead of `order`, draws with replacement: sample i as often as weights[i] of their sum.
  std::shared_ptr<const std::vector<double>> weights = {};
};

/// A training sample and the epoch in which it is read.
struct EpochSample {
  int64_t epoch = 0;
  int64_t index = 0;
};

/// The samples of a whole run as arithmetic: any step can be asked at once.
///
/// Global batches follow each other without a gap, across epochs too: position p of the run is place
/// p % num_samples of the order of epoch p / num_samples. With kPad and kDrop each epoch begins with a
/// global batch. Which sample stands at position j of step s therefore depends on seed, data and
/// global_batch alone, never on ranks, shares or micro-batches, and the step number is the whole state
/// to resume from.
/// Order   kRandom is P(seed, epoch), a keyed bijection, of which nothing is stored. kQuasi permutes the
///         pages, and the samples of open_pages / 2 of them together. kFfcv and kTorch are the lists of
///         those libraries for seed + epoch; rank r of N of DistributedSampler has places r, r + N, ...
/// Thread  any number of threads may read.
class Loader {
 public:
  /// Cost    kQuasi 4 bytes per sample, weights 12; kFfcv and kTorch 8 bytes per sample of an epoch in
  ///         use, written when one of its samples is first asked.
  /// Errors  kInvalidArgument for counts below 1, a share outside [0, global_batch), kDrop with fewer
  ///         samples than a global batch, pages or weights that do not fit; kUnsupported for kQuasi
  ///         of data without pages.
  static Result<Loader> create(const LoaderOptions& options);

  /// The share cut into runs of at most micro_batch positions, in order.
  const std::vector<layout::Range>& micro_batches() const { return micro_batches_; }

  /// What stands at `position` of the global batch of `step`; position in [0, global_batch).
  /// Errors  throws Error of kInvalidArgument for a step or a position below 0.
  EpochSample at(int64_t step, int64_t position) const;
  /// Those at `positions`, in order; of kRandom they cost a fraction of as many calls.
  std::vector<EpochSample> at(int64_t step, layout::Range positions) const;
  int64_t sample(int64_t step, int64_t position) const { return at(step, position).index; }

  /// The epoch in which the first position of `step` lies, counted from 0.
  int64_t epoch(int64_t step) const;

  const LoaderOptions& options() const { return options_; }

 private:
  Loader(const LoaderOptions& options, std::shared_ptr<const internal::EpochOrder> order);

  /// The place in its epoch, before the order.
  EpochSample place_of(int64_t step, int64_t position) const;
  /// Of an epoch that begins with a global batch; 0: epochs follow each other without a gap.
  int64_t steps_per_epoch() const;

  LoaderOptions options_;
  std::shared_ptr<const internal::EpochOrder> order_;
  std::vector<layout::Range> micro_batches_;
};

/// `range` cut into runs of at most `most` >= 1, in order; the last may be shorter.
std::vector<layout::Range> cut(layout::Range range, int64_t most);

}  // namespace hanji::data
