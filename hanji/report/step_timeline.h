#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/report/run_records.h"

namespace hanji::report {

/// What a rank did meanwhile.
enum class SpanKind : uint8_t {
  kCompute,  ///< Computing of no part that is told apart.
  kForward,
  kBackward,
  kOptimizer,
  kData,      ///< Waiting for samples.
  kTransfer,  ///< A collective from its call to its result in a trace; exposed transfer in accounts.
  kSkew       ///< Waiting for another rank.
};
inline constexpr int kNumSpanKinds = 7;
/// "compute", "forward", ..., "bytes", "waits".
std::string_view name_of(SpanKind kind);

/// Units  seconds since the first rank began the step.
struct TimelineSpan {
  SpanKind kind = SpanKind::kCompute;
  double begin = 0;
  double end = 0;
};

struct RankTimeline {
  int rank = 0;
  std::vector<TimelineSpan> spans;  ///< Ordered by kind, then time.
};

/// One step of all ranks.
struct StepTimeline {
  int64_t step = 0;         ///< Counted from 1; of an account of several steps the last.
  bool is_slowest = false;  ///< Else the one whose length is the median.
  double seconds = 0;       ///< From the first begin to the last end.
  bool is_traced =
      false;         ///< False: parts of the accounts, one after the other, in no order of time.
  std::string note;  ///< Why there is no trace, or how clocks of hosts were joined; may be empty.
  std::vector<RankTimeline>
      ranks;  ///< Ascending; at most kMaxTimelineRanks of them, evenly spread.
};
inline constexpr size_t kMaxTimelineRanks = 16;

/// The step of median length and the slowest one, from the traces of the run's folder where they have them, else from
/// the accounts. The first step warms up and is neither. Empty without accounts of two steps.
///
/// Cost    one pass over each trace that is there, of some 10 MB.
/// Errors  none: a trace that cannot be read is named in `note`.
std::vector<StepTimeline> read_timelines(const RunRecords& run);

}  // namespace hanji::report
