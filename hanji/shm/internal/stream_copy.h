#pragma once

#include <cstddef>
#include <cstdint>

namespace hanji::shm::internal {

/// Copies of at least so many bytes in all go past the caches: what they write would only drive out
/// what is still needed, and a store that misses the caches first reads the line that it replaces.
inline constexpr int64_t kStreamBytes = int64_t{24} << 20;

/// As memcpy(3), with stores that do not pass through the caches where the processor has such.
/// Order   the bytes are visible to others before any later store of this thread.
void stream_copy(void* to, const void* from, size_t bytes);

}  // namespace hanji::shm::internal
