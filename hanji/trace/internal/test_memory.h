#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace hanji::trace::internal {

/// Memory for a recorder in tests: zeroed and aligned, as a segment gives it.
class TestMemory {
 public:
  explicit TestMemory(size_t bytes) : lines_((bytes + 63) / 64) {}
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(lines_)); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

}  // namespace hanji::trace::internal
