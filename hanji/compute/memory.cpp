#include "hanji/compute/memory.h"

#include <array>
#include <climits>
#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace hanji::compute {
namespace {

#ifdef __GLIBC__
constexpr int kMaxThreshold = 32 << 20;  // glibc refuses more

/// Free addresses in the heap: a block above the threshold is taken from them before it is mapped. Pages
/// that nobody writes are not in memory. Below INT_MAX, above which the heap is trimmed.
bool reserve_addresses() {
  constexpr size_t kBlock = kMaxThreshold / 2, kBytes = size_t{1} << 30;
  std::array<void*, kBytes / kBlock> blocks = {};
  bool has_all = true;
  for (void*& one : blocks) {
    one = std::malloc(kBlock);
    has_all &= one != nullptr;
  }
  for (void* const one : blocks) std::free(one);
  return has_all;
}
#endif

}  // namespace

bool keep_freed_memory() {
#ifdef __GLIBC__
  return mallopt(M_MMAP_THRESHOLD, kMaxThreshold) == 1 && mallopt(M_TRIM_THRESHOLD, INT_MAX) == 1 &&
         reserve_addresses();
#else
  return false;
#endif
}

void return_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace hanji::compute
