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
using WideOf = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;

/// Widens as many ids as a vector holds of the wide ones.
template <class T>
HWY_INLINE void widen_vector(const std::byte* from, int64_t* out) {
  const hn::ScalableTag<WideOf<T>> wide;
  const hn::ScalableTag<int64_t> ids;
  hn::StoreU(hn::BitCast(ids, load_as<T>(wide, from)), ids, out);
}

template <class T>
void copy(const std::byte* from, int64_t count, int64_t* out) {
  const auto step = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<int64_t>()));
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    widen_vector<T>(from + i * static_cast<int64_t>(sizeof(T)), out + i);
  }
  for (; i < count; ++i) out[i] = static_cast<int64_t>(one_at<T>(from, i));
}

/// The least and the largest of narrow ids, of which a vector holds up to eight times as many as of wide ones.
template <class T>
class RangeOfIds {
 public:
  HWY_INLINE RangeOfIds()
      : least_lanes_(hn::Set(Tag(), std::numeric_limits<T>::max())),
        largest_lanes_(hn::Set(Tag(), std::numeric_limits<T>::min())) {}

  HWY_INLINE void add_vector(const std::byte* from) {
    const auto some = load_as<T>(Tag(), from);
    least_lanes_ = hn::Min(least_lanes_, some);
    largest_lanes_ = hn::Max(largest_lanes_, some);
  }
  HWY_INLINE void add(T id) {
    least_ = std::min(least_, id);
    largest_ = std::max(largest_, id);
  }
  HWY_INLINE IdRange result() {
    HWY_ALIGN T low[HWY_MAX_BYTES / sizeof(T)];
    HWY_ALIGN T high[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(least_lanes_, Tag(), low);
    hn::Store(largest_lanes_, Tag(), high);
    for (size_t lane = 0; lane < hn::Lanes(Tag()); ++lane) {
      least_ = std::min(least_, low[lane]);
      largest_ = std::max(largest_, high[lane]);
    }
    return {static_cast<int64_t>(least_), static_cast<int64_t>(largest_)};
  }

 private:
  using Tag = hn::ScalableTag<T>;
  hn::Vec<Tag> least_lanes_, largest_lanes_;
  T least_ = std::numeric_limits<T>::max();
  T largest_ = std::numeric_limits<T>::min();
};

template <class T>
IdRange range_from(const std::byte* from, int64_t count) {
  const auto step = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  RangeOfIds<T> range;
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    range.add_vector(from + i * static_cast<int64_t>(sizeof(T)));
  }
  for (; i < count; ++i) range.add(one_at<T>(from, i));
  return range.result();
}

/// Each line of memory is met once, and asked for while another is widened: a core waits for a few at a time.
template <class T>
IdRange copy_pair(PairOfRuns runs, int64_t count, int64_t* inputs, int64_t* targets) {
  const std::byte* from = runs.from;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const auto step = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const auto wide = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<int64_t>()));
  RangeOfIds<T> range;
  int64_t i = 0;
  for (; i + step <= count; i += step) {
    range.add_vector(from + i * kBytes);
    __builtin_prefetch(runs.coming + i * kBytes);
    for (int64_t k = i; k < i + step; k += wide) {
      widen_vector<T>(from + k * kBytes, inputs + k);
      widen_vector<T>(from + (k + 1) * kBytes, targets + k);
    }
  }
  for (; i < count; ++i) {
    const T id = one_at<T>(from, i);
    range.add(id);
    inputs[i] = static_cast<int64_t>(id);
    targets[i] = static_cast<int64_t>(one_at<T>(from, i + 1));
  }
  __builtin_prefetch(runs.coming + count * kBytes);
  range.add(one_at<T>(from, count));
  return range.result();
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

IdRange widen_pair(TokenWidth width, PairOfRuns runs, int64_t count, int64_t* inputs,
                   int64_t* targets) {
  return visit_type(width, [=](auto id) HWY_ATTR {
    return copy_pair<decltype(id)>(runs, count, inputs, targets);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::data::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "hanji/base/simd_dispatch.h"

namespace hanji::data::internal {

HWY_EXPORT(range_of);
HWY_EXPORT(widen);
HWY_EXPORT(widen_pair);

IdRange range_of(TokenWidth width, const std::byte* from, int64_t count) {
  return HANJI_DISPATCHED(range_of)(width, from, count);
}

void widen(TokenWidth width, const std::byte* from, int64_t count, int64_t* out) {
  HANJI_DISPATCHED(widen)(width, from, count, out);
}

IdRange widen_pair(TokenWidth width, PairOfRuns runs, int64_t count, int64_t* inputs,
                   int64_t* targets) {
  return HANJI_DISPATCHED(widen_pair)(width, runs, count, inputs, targets);
}

}  // namespace hanji::data::internal
#endif
