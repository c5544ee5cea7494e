#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hanji::test {

/// Runs body(rank) for ranks 0..ranks-1, each on a thread of its own, and returns when all have
/// returned. The first exception is thrown again here, so a test sees failures of every rank.
inline void run_threads(int ranks, const std::function<void(int rank)>& body) {
  std::exception_ptr first;
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (first == nullptr) first = std::current_exception();
        }
      });
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace hanji::test
