#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace hanji::shm::internal {

/// Sleeps while `word` is `expected`, at most `limit`. May wake for no reason. Works between
/// processes.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds limit);

/// Wakes everybody who sleeps on `word`.
void futex_wake_all(std::atomic<uint32_t>& word);

}  // namespace hanji::shm::internal
