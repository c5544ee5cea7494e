#pragma once

/// The words that ranks share are read and written through these names only, so that a test can
/// put a modelled memory under the same code and run it in every order (hanji/test/model).
#ifdef HANJI_MODEL_MEMORY
#include HANJI_MODEL_MEMORY
#else

#include <atomic>
#include <cstddef>

namespace hanji::shm::internal {

template <class T>
using Atomic = std::atomic<T>;

/// Orders "I stored, now I look for sleepers" against "I am a sleeper, now I look again".
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic pop
#endif
}

/// Bytes that are not atomic are about to be read or written: only a model wants to know.
inline void note_read(const void*, size_t) {}
inline void note_write(const void*, size_t) {}

/// Of each end of a channel (segment_layout.h); a model has few, so that a sender soon needs all.
inline constexpr size_t kChannelLines = 16;

}  // namespace hanji::shm::internal

#endif
