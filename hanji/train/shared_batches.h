#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/data/source.h"
#include "hanji/layers/batch.h"
#include "hanji/layout/range.h"

namespace hanji::train {

/// Batches of the ranks that see the same samples: the first of them reads, the others map its memory.
///
/// That memory is double-buffered.
/// Order   a collective of the peers must follow each read(): it shows them the samples, and that nobody
///         uses those of the read before.
class SharedBatches {
 public:
  /// Writes the samples at `positions` to a batch.
  using Fill = std::function<void(layout::Range positions, layers::Batch& batch)>;

  /// For at most `samples` samples per read(). Without peers, or if they share no memory, each rank
  /// reads into memory of its own.
  /// Order   collective over the peers.
  /// Cost    twice `samples` in the heap of the first peer, category "data".
  /// Errors  throws as comm::shared_zeros().
  SharedBatches(const std::optional<comm::Group>& peers, data::SampleShape shape, int64_t samples);

  bool are_shared() const { return !halves_.empty(); }
  /// Samples of a read(), at most.
  int64_t capacity() const { return capacity_; }
  /// In this rank's part of the heap.
  int64_t own_bytes() const;

  /// How long a batch is used: until the reader that lends its memory is asked for the next one, or longer.
  enum class Use : uint8_t { kUntilNext, kLonger };
  /// Makes `batch`, which is being filled, the samples of `ready`: the same tensors, or a copy in the
  /// memory that peers map, or in its own if it is used longer.
  void hand_over(const layers::Batch& ready, layers::Batch& batch, Use use = Use::kUntilNext) const;

  /// Makes a batch of each of `cuts`, and fills it on the rank that reads.
  void read(std::span<const layout::Range> cuts, std::span<layers::Batch> batches,
            const Fill& fill);

 private:
  data::SampleShape shape_;
  int64_t capacity_;
  bool reads_ = true;
  std::vector<layers::Batch> halves_;
  size_t turn_ = 0;
};

}  // namespace hanji::train
