#include "hanji/compute/internal/adamw_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hanji/compute/adamw_kernel.cpp"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// clang-format off: must follow highway.h
#include "hanji/compute/internal/vectors-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hanji::compute::internal {
namespace HWY_NAMESPACE {

/// Interpolates as libtorch's lerp, from the nearer end, so that a weight of one gives the gradient itself.
template <class D>
HWY_INLINE hn::Vec<D> between(D d, hn::Vec<D> moment, hn::Vec<D> gradient, float weight) {
  const auto apart = hn::Sub(gradient, moment);
  if (weight < 0.5F) return hn::MulAdd(hn::Set(d, weight), apart, moment);
  return hn::MulAdd(hn::Set(d, weight - 1), apart, gradient);
}

// Which products are fused with a sum is libtorch's, too: bits of trained weights depend on it.
void adamw_elements(int64_t begin, int64_t end, const AdamWElements& e, const AdamWNumbers& n) {
  const hn::ScalableTag<float> d;
  for_columns(d, end - begin, [&](int64_t offset, auto at) HWY_ATTR {
    const int64_t i = begin + offset;
    const auto g = hn::Div(at.read(e.gradient + i), hn::Set(d, n.divisor));
    const auto kept = hn::Mul(at.read(e.parameter + i), hn::Set(d, n.kept));
    const auto first = between(d, at.read(e.first + i), g, n.weight);
    const auto second = hn::MulAdd(hn::Mul(hn::Set(d, n.rest2), g), g,
                                   hn::Mul(at.read(e.second + i), hn::Set(d, n.beta2)));
    const auto deviation =
        hn::Add(hn::Div(hn::Sqrt(second), hn::Set(d, n.root)), hn::Set(d, n.epsilon));
    const auto change = hn::Div(hn::Mul(hn::Set(d, n.step), first), deviation);
    const auto parameter = hn::Add(kept, change);
    at.write(parameter, e.parameter + i);
    at.write(first, e.first + i);
    at.write(second, e.second + i);
    if (e.rounded != nullptr) at.write(parameter, e.rounded + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::compute::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hanji/base/simd_dispatch.h"

namespace hanji::compute::internal {

HWY_EXPORT(adamw_elements);

void adamw(int64_t begin, int64_t end, const AdamWElements& elements, const AdamWNumbers& numbers) {
  HANJI_DISPATCHED(adamw_elements)(begin, end, elements, numbers);
}

}  // namespace hanji::compute::internal
#endif
