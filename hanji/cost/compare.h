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
inline constexpr int kMaxSegments = 200;
/// Of more ranks a symmetric list is one rank's steps, in a comparison.
inline constexpr int kMaxWholeRanks = 64;
/// The most steps of a list that is simulated: of some 200 bytes and 1 us each, and with each message
/// told as JSON of 300 bytes.
inline constexpr int64_t kMaxSteps = int64_t{1} << 21;
/// The same of a list that is simulated at some hundred sizes, above kMaxWholeRanks.
inline constexpr int64_t kMaxComparedSteps = int64_t{1} << 17;

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
  schedule::StepList list;  ///< Its elements are bytes. Of a symmetric one the longest path may do.
  Timeline timeline;
  int64_t steps = 0;       ///< Of the rank that has the most.
  int64_t sent_bytes = 0;  ///< By the rank that sends the most.

  double seconds() const { return timeline.seconds(); }
};

/// Algorithms whose lists are too long to be compared at many sizes, with the steps of all ranks.
struct LeftOut {
  schedule::Algorithm algorithm;
  int64_t steps = 0;  ///< With the most segments.
};
std::vector<LeftOut> left_out(const Question& question);

/// The segments that a pipeline of this shape should have: sqrt of (rounds to fill it * seconds of
/// all bytes / latency), between 1 and kMaxSegments.
int best_segments(const schedule::Algorithm& algorithm, const Question& question);

/// Simulates one algorithm, message by message where its list has at most kMaxSteps, else by one
/// rank's steps where it is symmetric.
/// Errors  as simulate(), and where its maker throws; invalid_argument with the number of steps for
///         a longer list without symmetry.
Result<Answer> answer(const schedule::Algorithm& algorithm, const Question& question);
/// The same as comparisons do it: of more than kMaxWholeRanks by one rank's steps where it can.
Result<Answer> compared(const schedule::Algorithm& algorithm, const Question& question);

/// Simulates all of the routine's algorithms whose lists have at most kMaxSteps; the fastest first, of
/// equals the first in message_algorithms(). Errors: unsupported for a routine that has none.
Result<std::vector<Answer>> answers(const Question& question);

/// From `from_bytes` on this algorithm is the fastest, up to the next one's.
struct Crossover {
  int64_t from_bytes = 0;
  schedule::Algorithm algorithm;
};
/// Who is the fastest for which size, from 1 byte to `up_to`, of all but left_out(); borders to
/// 0.5 %.
Result<std::vector<Crossover>> crossovers(Question question, int64_t up_to);

/// The size from which on `second` is faster than `first`, which is the faster one for 1 byte;
/// to 0.5 %. Nothing if it is not, or up to `up_to` never ends to be.
Result<std::optional<int64_t>> crossover(const schedule::Algorithm& first,
                                         const schedule::Algorithm& second, Question question,
                                         int64_t up_to);

}  // namespace hanji::cost
