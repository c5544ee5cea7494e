#pragma once

#include <chrono>
#include <cstdint>

#include "hanji/shm/internal/atomic.h"

namespace hanji::shm::internal {

/// Sleeps while `word` is `expected`, at most `limit`. May wake for no reason. Works between
/// processes.
void futex_wait(Atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds limit);

/// Wakes everybody who sleeps on `word`.
void futex_wake_all(Atomic<uint32_t>& word);

}  // namespace hanji::shm::internal
