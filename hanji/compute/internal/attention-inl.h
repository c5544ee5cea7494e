// What the kernels of attention share; included once per vector target.
#if defined(HANJI_COMPUTE_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HANJI_COMPUTE_ATTENTION_INL_H
#undef HANJI_COMPUTE_ATTENTION_INL_H
#else
#define HANJI_COMPUTE_ATTENTION_INL_H
#endif

#include <algorithm>

#include "hanji/base/attention_extent.h"
#include "hanji/compute/internal/attention_kernels.h"
#include "hanji/compute/internal/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hanji::compute::internal {
namespace HWY_NAMESPACE {

/// out[r] = in[r] * scale for some tokens; adds their sum to `sums`. Sums of groups, not of tokens, are
/// added one after another: that keeps the rounding of long columns small.
template <class T, class C>
HWY_INLINE void emit(const Head<T>& h, int64_t rows, const C* in, int64_t in_stride, C scale,
                     T* out, C* sums) {
  const hn::ScalableTag<C> d;
  const auto factor = hn::Set(d, scale);
  for_columns(d, h.size, [&](int64_t i, auto at) HWY_ATTR {
    auto total = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const auto v = hn::Mul(at.read(in + r * in_stride + i), factor);
      at.write(v, out + r * h.row + i);
      total = hn::Add(total, v);
    }
    at.write(hn::Add(at.read(sums + i), total), sums + i);
  });
}

/// The same of all tokens, whose rows are of `size` and whose sums begin at zero.
template <class T, class C>
HWY_INLINE void emit_all(const Head<T>& h, int64_t size, const C* in, C scale, T* out, C* sums) {
  constexpr int64_t kRows = base::AttentionExtent::kGroup;
  std::fill_n(sums, h.size, C{0});
  for (int64_t t = 0; t < h.length; t += kRows) {
    emit(h, std::min(kRows, h.length - t), in + t * size, size, scale, out + t * h.row, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::compute::internal
HWY_AFTER_NAMESPACE();

#endif
