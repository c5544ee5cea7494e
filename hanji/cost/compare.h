#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/cost/simulate.h"
#include "hanji/schedule/catalogue.h"

namespace hanji::cost {

/// Pieces of a pipeline where nothing limits them: no latency.
inline constexpr int kSegmentsWithoutLatency = 50;
/// The most pieces that are tried.
inline constexpr int kMostSegments = 200;

/// A call on a network.
struct Question {
  schedule::Routine routine = schedule::Routine::kBroadcast;
  /// Of the largest buffer of one rank: what everybody has in broadcast, reduce and all_reduce;
  /// all shards together in all_gather, reduce_scatter, gather, scatter and all_to_all.
  int64_t bytes = 0;
  int ranks = 1;
  Network network;
  int root = 0;
  int segments = 0;        ///< Of pipelines; 0: the best.
  int ranks_per_host = 0;  ///< Of hierarchies; 0: none is a candidate.
};

/// One algorithm's answer.
struct Answer {
  schedule::Algorithm algorithm;
  int segments = 0;         ///< 0: no pipeline.
  schedule::StepList list;  ///< Its elements are bytes.
  Timeline timeline;

  double seconds() const { return timeline.seconds(); }
  /// Bytes that the busiest rank sends.
  int64_t sent_bytes() const;
};

/// The segments that a pipeline of this shape should have: sqrt of (rounds to fill it * seconds of
/// all bytes / latency), between 1 and kMostSegments.
int best_segments(const schedule::Algorithm& algorithm, const Question& question);

/// Simulates one algorithm. Errors: as simulate(), and where its maker throws.
Result<Answer> answer(const schedule::Algorithm& algorithm, const Question& question);

/// Simulates all of the routine's algorithms; the fastest first, of equals the first in
/// message_algorithms(). Errors: unsupported for a routine that has none.
Result<std::vector<Answer>> answers(const Question& question);

/// From `from_bytes` on this algorithm is the fastest, up to the next one's.
struct Crossover {
  int64_t from_bytes = 0;
  schedule::Algorithm algorithm;
};
/// Who is the fastest for which size, from 1 byte to `up_to`; borders to 0.5 %.
Result<std::vector<Crossover>> crossovers(Question question, int64_t up_to);

/// The size from which on `second` is faster than `first`, which is the faster one for 1 byte;
/// to 0.5 %. Nothing if it is not, or up to `up_to` never ends to be.
Result<std::optional<int64_t>> crossover(const schedule::Algorithm& first,
                                         const schedule::Algorithm& second, Question question,
                                         int64_t up_to);

}  // namespace hanji::cost
