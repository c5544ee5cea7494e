#include "hanji/layout/flat.h"

namespace hanji::layout {

FlatLayout flat_layout(std::span<const int64_t> sizes, int64_t alignment) {
  FlatLayout flat;
  flat.sizes.assign(sizes.begin(), sizes.end());
  for (const int64_t size : sizes) {
    flat.offsets.push_back(flat.count);
    flat.count += round_up(size, alignment);
  }
  return flat;
}

}  // namespace hanji::layout
