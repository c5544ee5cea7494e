#pragma once

namespace hanji::base {

/// Tells the processor that this is a spinning loop: a thread beside it on the same core goes faster.
inline void relax_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace hanji::base
