#include "hanji/shm/internal/stream_copy.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hanji::shm::internal {

#if defined(__SSE2__)

void stream_copy(void* to, const void* from, size_t bytes) {
  constexpr size_t kLine = 64;
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  // Whole lines only are combined on the way to memory.
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine;
  if (bytes < head + kLine) {
    std::memcpy(target, source, bytes);
    return;
  }
  std::memcpy(target, source, head);
  size_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    const auto* in = reinterpret_cast<const __m128i*>(source + done);
    auto* out = reinterpret_cast<__m128i*>(target + done);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  std::memcpy(target + done, source + done, bytes - done);
  _mm_sfence();  // these stores are ordered by nothing else
}

#else

void stream_copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace hanji::shm::internal
