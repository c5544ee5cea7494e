#pragma once

#include "hanji/base/simd.h"

namespace hanji::compute::internal {

/// Begins with the instructions that HANJI_SIMD allows, before the first kernel of this process.
/// Errors  throws Error as base::usable_simd().
inline void begin_simd() {
  static const base::Simd begun = base::usable_simd().or_throw();
  (void)begun;
}

}  // namespace hanji::compute::internal

/// HWY_DYNAMIC_DISPATCH() of a kernel of ours.
#define HANJI_DISPATCHED(function) \
  (::hanji::compute::internal::begin_simd(), HWY_DYNAMIC_DISPATCH(function))
