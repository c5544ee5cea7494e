#pragma once

#include <cstdint>
#include <memory>

#include "hanji/data/source.h"
#include "hanji/layers/batch.h"
#include "hanji/layout/range.h"
#include "hanji/plan/reading.h"

namespace hanji::data {

/// Reads the batches of an evaluation ahead on threads of its own, as Prefetcher those of a run.
///
/// Result  bit-identical to read_validation_batch() for any number of threads.
/// Thread  one at a time. The threads end with this.
class ValidationReader {
 public:
  /// Of places `share` of an evaluation of `total` validation samples, `micro_batch` at a time:
  /// `reading` ahead is in these.
  /// `source` must outlive this.
  ValidationReader(const Source& source, int64_t total, layout::Range share, int64_t micro_batch,
                   const plan::Reading& reading);
  ~ValidationReader();
  ValidationReader(const ValidationReader&) = delete;
  ValidationReader& operator=(const ValidationReader&) = delete;

  /// The batch at `positions`, which begin at a multiple of micro_batch within the share. Its tensors
  /// are valid until the next call. Batches that follow each other are read ahead.
  /// Errors  throws that of the first sample that could not be read.
  layers::Batch read(layout::Range positions);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hanji::data
