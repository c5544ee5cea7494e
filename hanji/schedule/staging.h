#pragma once

#include <cstdint>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// A rank's slots and its results each have this much room in the segment; a list that is run there
/// has slot_elements * element_bytes at most this large. Ranks whose processors are also wanted by
/// others lose a time slice per meeting, so that few large chunks are worth more than a cache.
inline constexpr int64_t kSlotBytes = 4 * kStagingBytes;

/// Whether a buffer is a tensor of the call; the others are staging.
constexpr bool is_tensor(Place place) { return place == Place::kInput || place == Place::kOutput; }

}  // namespace hanji::schedule
