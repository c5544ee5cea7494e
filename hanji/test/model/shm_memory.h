#pragma once

#include "hanji/test/model/memory.h"

/// The memory of hanji/shm/internal/atomic.h, modelled; see there.
namespace hanji::shm::internal {

using test::model::Atomic;
using test::model::full_fence;
using test::model::note_read;
using test::model::note_write;

inline constexpr size_t kChannelLines = 4;

}  // namespace hanji::shm::internal
