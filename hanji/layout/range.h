#pragma once

#include <cstdint>

namespace hanji::layout {

/// The half-open interval [begin, end) of elements, grains or samples.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool operator==(const Range&) const = default;
};

}  // namespace hanji::layout
