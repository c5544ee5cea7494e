#pragma once

#include <fmt/format.h>

#include <exception>
#include <span>

#include "hanji/base/exception.h"
#include "hanji/data/batch.h"

namespace hanji::data::internal {

/// Where a position's sample is written.
struct BatchRow {
  layers::Batch* batch = nullptr;
  int64_t row = 0;
};

/// The error of a run, and the position that it is of.
struct RunFailure {
  Status status;
  int64_t position = 0;
};

/// Reads the samples at some positions of a global batch, and mixes those of pairs.
class RunReader {
 public:
  /// `samples` are those at `positions`, as loader.at() says.
  RunReader(const Source& source, const Loader& loader, int64_t step, layout::Range positions,
            std::span<const EpochSample> samples)
      : source_(source), loader_(loader), step_(step), positions_(positions), samples_(samples) {}

  /// `row_of` a position gives its BatchRow. The first failure ends the run; an exception of a program's
  /// own source is one.
  template <class RowOf>
  RunFailure read(layout::Range run, const RowOf& row_of) const {
    for (int64_t position = run.begin; position < run.end; ++position) {
      Status status;
      try {
        status = read_at(position, run, row_of);
      } catch (...) {
        status =
            base::status_of_program(std::current_exception())
                .at(fmt::format("the source of samples, sample {}", sample_at(position).index));
      }
      if (!status.ok()) return {status, position};
    }
    return {};
  }

 private:
  /// Samples ahead whose bytes are asked for; two of 2 KiB are more lines than a core waits for at a time.
  static constexpr int64_t kExpected = 1;

  EpochSample sample_at(int64_t position) const {
    const bool is_known = position >= positions_.begin && position < positions_.end;
    return is_known ? samples_[static_cast<size_t>(position - positions_.begin)]
                    : loader_.at(step_, position);
  }

  template <class RowOf>
  Status read_at(int64_t position, layout::Range run, const RowOf& row_of) const {
    // Of the run behind this one too, which the same thread reads next if it is alone.
    const int64_t coming = position + kExpected;
    if (coming < positions_.end) source_.expect(sample_at(coming).index);
    const BatchRow own = row_of(position);
    HANJI_RETURN_IF_ERROR(read_one(position, own));
    const int64_t other = position ^ 1;
    if (!source_.mixes_pairs() || other >= loader_.options().global_batch) return {};
    const bool is_in_run = other >= run.begin && other < run.end;
    // Of a pair in the run, the second one mixes both.
    if (!is_in_run) return mix_with_reread(position, own);
    if (other < position) mix(other, row_of(other), own);
    return {};
  }

  Status read_one(int64_t position, BatchRow into) const {
    const EpochSample one = sample_at(position);
    return source_.read_in_epoch(one.epoch, one.index, *into.batch, into.row);
  }

  void mix(int64_t even, BatchRow first, BatchRow second) const {
    const EpochSample a = sample_at(even), b = sample_at(even + 1);
    source_.mix({a.epoch, a.index, first.batch, first.row},
                {b.epoch, b.index, second.batch, second.row});
  }

  Status mix_with_reread(int64_t position, BatchRow own) const {
    layers::Batch memory;
    shape_batch(source_.shape(), {0, 1}, memory);
    const BatchRow other{&memory, 0};
    HANJI_RETURN_IF_ERROR(read_one(position ^ 1, other));
    const bool is_even = position % 2 == 0;
    mix(position - position % 2, is_even ? own : other, is_even ? other : own);
    return {};
  }

  const Source& source_;
  const Loader& loader_;
  int64_t step_;
  layout::Range positions_;
  std::span<const EpochSample> samples_;
};

}  // namespace hanji::data::internal
