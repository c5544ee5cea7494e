#pragma once

#include <cstdint>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layout/range.h"
#include "hanji/plan/choices.h"

namespace hanji::data {

/// Which samples a data coordinate trains on, and in what order: each of its ranks reads them.
struct LoaderOptions {
  uint64_t seed = 0;
  int64_t num_samples = 0;   ///< Training samples of the data set.
  int64_t global_batch = 0;  ///< Samples of one step, over all data coordinates.
  layout::Range share;       ///< Of this data coordinate, within every global batch.
  int64_t micro_batch = 0;   ///< Most samples of one forward.
  plan::SampleOrder order = plan::SampleOrder::kRandom;
};

/// A training sample and the epoch in which it is read.
struct EpochSample {
  int64_t epoch = 0;
  int64_t index = 0;
};

/// The samples of a whole run as arithmetic: nothing is stored, any step can be asked at once.
///
/// Global batches follow each other without a gap, across epochs too: position p of the run is
/// sample P(seed, p / num_samples)(p % num_samples), or p % num_samples if sequential. Which sample stands at position j of step s
/// therefore depends on seed, data and global_batch alone, never on ranks, shares or micro-batches,
/// and the step number is the whole state to resume from.
/// Thread  any number of threads may read.
class Loader {
 public:
  /// Errors  kInvalidArgument for counts below 1 or a share outside [0, global_batch).
  static Result<Loader> create(const LoaderOptions& options);

  /// The share cut into runs of at most micro_batch positions, in order.
  const std::vector<layout::Range>& micro_batches() const { return micro_batches_; }

  /// What stands at `position` of the global batch of `step`; position in [0, global_batch).
  EpochSample at(int64_t step, int64_t position) const;
  int64_t sample(int64_t step, int64_t position) const { return at(step, position).index; }

  /// The epoch in which the first position of `step` lies, counted from 0.
  int64_t epoch(int64_t step) const;

  const LoaderOptions& options() const { return options_; }

 private:
  explicit Loader(const LoaderOptions& options);

  LoaderOptions options_;
  std::vector<layout::Range> micro_batches_;
};

/// `range` cut into runs of at most `most` >= 1, in order; the last may be shorter.
std::vector<layout::Range> cut(layout::Range range, int64_t most);

}  // namespace hanji::data
