#include "hanji/data/internal/token_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hanji/data/token_kernels.cpp"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hanji::data::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
T one_at(const std::byte* from, int64_t i) {
  T value;
  std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

/// As many ids as `d` has lanes, widened by as many doublings as lie between.
template <class T, class D>
HWY_INLINE hn::VFromD<D> load_as(D d, const std::byte* from) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(T)) {
    return hn::LoadU(d, reinterpret_cast<const T*>(from));
  } else {
    const hn::Rebind<hwy::MakeNarrow<hn::TFromD<D>>, D> narrow;
    return hn::PromoteTo(d, load_as<T>(narrow, from));
  }
}

template <class T>
void copy(const std::byte* from, int64_t count, int64_t* out) {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  const hn::ScalableTag<Wide> wide;
  const hn::ScalableTag<int64_t> ids;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    const auto some = load_as<T>(wide, from + i * static_cast<int64_t>(sizeof(T)));
    hn::StoreU(hn::BitCast(ids, some), ids, out + i);
  }
  for (; i < count; ++i) out[i] = static_cast<int64_t>(one_at<T>(from, i));
}

/// Over vectors of the narrow ids, of which one holds up to eight of the wide ones'.
template <class T>
IdRange range_from(const std::byte* from, int64_t count) {
  const hn::ScalableTag<T> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  T least = std::numeric_limits<T>::max(), largest = std::numeric_limits<T>::min();
  int64_t i = 0;
  if (count >= step) {
    auto least_lanes = load_as<T>(d, from), largest_lanes = least_lanes;
    for (i = step; i + step <= count; i += step) {
      const auto some = load_as<T>(d, from + i * static_cast<int64_t>(sizeof(T)));
      least_lanes = hn::Min(least_lanes, some);
      largest_lanes = hn::Max(largest_lanes, some);
    }
    HWY_ALIGN T low[HWY_MAX_BYTES / sizeof(T)];
    HWY_ALIGN T high[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(least_lanes, d, low);
    hn::Store(largest_lanes, d, high);
    for (int64_t lane = 0; lane < step; ++lane) {
      least = low[lane] < least ? low[lane] : least;
      largest = high[lane] > largest ? high[lane] : largest;
    }
  }
  for (; i < count; ++i) {
    const T id = one_at<T>(from, i);
    least = std::min(least, id);
    largest = std::max(largest, id);
  }
  return {static_cast<int64_t>(least), static_cast<int64_t>(largest)};
}

/// Calls `visit` with a value of the type of one id.
template <class Visit>
HWY_INLINE auto visit_type(TokenWidth width, const Visit& visit) {
  switch (width) {
    case TokenWidth::kUInt8: return visit(uint8_t{});
    case TokenWidth::kInt8: return visit(int8_t{});
    case TokenWidth::kUInt16: return visit(uint16_t{});
    case TokenWidth::kInt16: return visit(int16_t{});
    case TokenWidth::kInt32: return visit(int32_t{});
    case TokenWidth::kUInt32: return visit(uint32_t{});
    case TokenWidth::kInt64: break;
  }
  return visit(int64_t{});
}

IdRange range_of(TokenWidth width, const std::byte* from, int64_t count) {
  return visit_type(width, [=](auto id) HWY_ATTR { return range_from<decltype(id)>(from, count); });
}

void widen(TokenWidth width, const std::byte* from, int64_t count, int64_t* out) {
  visit_type(width, [=](auto id) HWY_ATTR { copy<decltype(id)>(from, count, out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::data::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hanji/base/simd_dispatch.h"

namespace hanji::data::internal {

HWY_EXPORT(range_of);
HWY_EXPORT(widen);

IdRange range_of(TokenWidth width, const std::byte* from, int64_t count) {
  return HANJI_DISPATCHED(range_of)(width, from, count);
}

void widen(TokenWidth width, const std::byte* from, int64_t count, int64_t* out) {
  HANJI_DISPATCHED(widen)(width, from, count, out);
}

}  // namespace hanji::data::internal
#endif
