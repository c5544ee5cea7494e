#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/internal/state.h"

namespace hanji::comm {

/// A group of a segment.
struct ShmGroup {
  int id = 0;
  std::vector<int> members{};       ///< Ranks of the segment, in group order.
  std::optional<uint32_t> epoch{};  ///< Of the segment; by default the present one.
};

/// One that can be divided, carries messages, and knows how to go on without those that are lost.
/// Errors  throws Error as shm::Engine::create().
Group make_shm_group(const Heap& heap, std::shared_ptr<GroupFamily> family, ShmGroup which,
                     GroupOptions options);

}  // namespace hanji::comm
