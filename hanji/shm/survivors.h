#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/shm/segment.h"

namespace hanji::shm {

/// One member of a failed group, which continues with the surviving ranks.
struct SurvivorOptions {
  int group_id = 0;
  std::vector<int> members;  ///< Of the failed group, ranks of the segment.
  int my_rank = 0;           ///< One of them.
  uint32_t epoch = 0;        ///< Engine::epoch() of the failed group.
  int first_free_id = 0;     ///< No group of this rank has this id or a larger one.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
};

/// Who goes on, and with which group: the same on each of them.
struct Survivors {
  std::vector<int> members;  ///< Ranks of the segment, in the order of the failed group.
  int group_id = 0;          ///< Free on every one of them.
  uint32_t epoch = 0;        ///< For EngineOptions::epoch.
};

/// Meets the other living members of a failed group and agrees with them on who they are.
///
/// Everyone who lives must come: one of them then fixes the answer for all by a single exchange in
/// shared memory, so no two have different ones, even if more ranks die. Where the epoch has ended,
/// the next one begins, and the channels of this rank are made new. A survivor may be dead by the
/// time of the answer: then the new group fails in turn, and its members meet again.
/// Order   every living member calls it once per failed group, then makes an engine with the answer
///         and meets the others there (a barrier) before it uses a channel.
/// Errors  kTimeout, naming who lives and did not come; kPeerLost if the others took this rank for
///         dead; kInvalidArgument for a second call; kUnsupported after too many epochs; what ended
///         the epoch, if that was not the loss of a rank.
Result<Survivors> agree_on_survivors(Segment& segment, const SurvivorOptions& options);

}  // namespace hanji::shm
