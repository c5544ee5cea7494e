#pragma once

#include "hanji/base/simd.h"

namespace hanji::base {

/// Begins with the instructions that HANJI_SIMD allows, before the first kernel of this process.
/// Errors  throws Error as usable_simd().
inline void begin_simd() {
  static const Simd begun = usable_simd().or_throw();
  (void)begun;
}

}  // namespace hanji::base

/// HWY_DYNAMIC_DISPATCH() of a kernel of ours.
#define HANJI_DISPATCHED(function) (::hanji::base::begin_simd(), HWY_DYNAMIC_DISPATCH(function))
