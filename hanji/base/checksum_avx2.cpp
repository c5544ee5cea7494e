// Compiled with -mavx2 and XXH_INLINE_ALL: xxhash.h's functions are static here, and nothing else is included.
#include "hanji/base/checksum_avx2.h"

#include <xxhash.h>

namespace hanji::base {

uint64_t xxh3_by_avx2(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace hanji::base
