#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/schedule/action.h"

namespace hanji::schedule {

enum class PipelineKind : uint8_t {
  kNaive,          ///< One micro-batch at a time: one rank computes, the others wait.
  kGpipe,          ///< All forwards, then all backwards (arXiv 1811.06965).
  k1F1B,           ///< One forward, one backward (arXiv 2006.09503).
  kInterleaved,    ///< 1F1B, ranks visited several times (arXiv 2104.04473).
  kLoopedBfs,      ///< GPipe, ranks visited several times (arXiv 2211.05953).
  kZbH1,           ///< 1F1B; backward_weight fills the bubble (arXiv 2401.10241).
  kInterleavedZb,  ///< The same, ranks visited several times.
  kZbV,            ///< Two stages per rank, down the ranks and back up (the same paper).
  kDualPipeV,      ///< The same from both ends of the step (arXiv 2412.19437).
  kUser,           ///< Read from a file.
};

/// "naive", "gpipe", "1f1b", "interleaved", "bfs", "zbh1", "interleaved_zb", "zbv", "dualpipev";
/// "user".
std::string_view name_of(PipelineKind kind);
/// All but kUser, in the order of the enumeration.
std::vector<PipelineKind> pipeline_kinds();
std::optional<PipelineKind> pipeline_kind_named(std::string_view name);
/// Stages per rank, if `wanted` are asked of kinds that visit ranks several times: other kinds have
/// one or two.
int stages_per_rank(PipelineKind kind, int wanted);

struct PipelineShape {
  int num_ranks = 1;
  int64_t num_micro_batches = 1;
  int stages_per_rank = 1;
};

/// What every rank of a pipeline does in a step.
struct PipelineSchedule {
  PipelineKind kind = PipelineKind::kUser;
  PipelineShape shape;
  std::vector<int> rank_of_stage;
  std::vector<ActionList> ranks;

  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
};

/// Makes the schedule of one kind: computations, the messages between stages of different ranks, and
/// the reduce of each stage after its last backward.
///
/// Order   a send follows its computation. A receive stands before the first computation that needs
///         it, or that needs a later message of the same sender: no receive delays an action that is
///         ready. Messages between two ranks are received in the order in which they are sent.
/// Errors  invalid_argument: sizes below 1, above kMaxRanks, or of more than 2^19 passes; stages per
///         rank that the kind does not have; micro-batches that do not fill whole rounds (interleaved), or fewer than
///         stages (dualpipev).
Result<PipelineSchedule> pipeline_schedule(PipelineKind kind, const PipelineShape& shape);

}  // namespace hanji::schedule
