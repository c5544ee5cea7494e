#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "hanji/base/clock.h"

namespace hanji::test {

/// Bytes per second at which this thread copies 4 KiB within its first-level cache, a byte copied
/// counting once: the best of many batches. No core copies faster through memory.
inline double cached_copy_rate() {
  constexpr size_t kBytes = 4096;
  constexpr int kCopies = 200, kBatches = 200;
  alignas(64) static std::array<char, kBytes> from, to;
  double best = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const int64_t begin = base::now_ns();
    for (int copy = 0; copy < kCopies; ++copy) {
      from[static_cast<size_t>(copy)] = static_cast<char>(batch);
      std::memcpy(to.data(), from.data(), kBytes);
      asm volatile("" : : "r"(to.data()) : "memory");  // the copy is not left out
    }
    const auto taken = static_cast<double>(std::max<int64_t>(1, base::now_ns() - begin));
    best = std::max(best, double{kBytes} * kCopies * 1e9 / taken);
  }
  return best;
}

}  // namespace hanji::test
