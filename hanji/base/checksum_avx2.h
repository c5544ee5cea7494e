#pragma once

#include <cstddef>
#include <cstdint>

namespace hanji::base {

/// XXH3-64 by AVX2, which the processor must have: twice as fast as the library's SSE2, the same values.
uint64_t xxh3_by_avx2(const void* bytes, size_t size);

}  // namespace hanji::base
