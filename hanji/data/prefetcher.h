#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "hanji/data/batch.h"
#include "hanji/data/loader.h"
#include "hanji/data/source.h"
#include "hanji/layers/batch.h"
#include "hanji/layout/range.h"

namespace hanji::data {

/// What reading has taken so far.
struct ReadingTime {
  int64_t samples = 0;
  double seconds = 0;                   ///< Of the threads that read them, one after the other.
  std::optional<double> fetching = {};  ///< Of these, as Source::fetching_seconds().
};

/// Reads the batches of a run on threads of its own: while the batches of one step are used, those of
/// the next steps are read.
///
/// Result  bit-identical to read_batch() for any number of threads and steps ahead.
/// Cost    steps_ahead + 1 steps' batches, without threads one step's. The caller's thread reads too, instead of waiting.
/// Thread  one at a time. The threads end with this, within 16 samples each.
class Prefetcher {
 public:
  /// `source` must outlive this. Reads no step from `end_step` on. `steps_ahead` 0: the threads read
  /// only the step that is asked, and rest while it is used.
  Prefetcher(const Source& source, const Loader& loader, int num_threads, int64_t end_step,
             int64_t steps_ahead = 1);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Reads into such memory. Order: before the first read().
  void use_memory(Memory memory);

  /// The micro-batch at `positions`, one of loader.micro_batches(), of `step` < end_step. Its tensors
  /// are valid until the next step's is asked. Steps that follow each other are read ahead.
  /// Errors  throws that of the step's first sample that could not be read, with its number.
  const layers::Batch& read(int64_t step, layout::Range positions);

  /// Of all threads, the caller's too.
  ReadingTime reading_time() const;

  /// Of the batches of all steps that were begun.
  int64_t bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hanji::data
