#include "hanji/compute/memory.h"

#include <climits>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace hanji::compute {

bool keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestThreshold = 32 << 20;  // glibc refuses more
  return mallopt(M_MMAP_THRESHOLD, kLargestThreshold) == 1 &&
         mallopt(M_TRIM_THRESHOLD, INT_MAX) == 1;
#else
  return false;
#endif
}

}  // namespace hanji::compute
