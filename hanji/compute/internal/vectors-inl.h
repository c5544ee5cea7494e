// Loads, stores and column loops shared by the kernels; included once per vector target.
#if defined(HANJI_COMPUTE_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HANJI_COMPUTE_VECTORS_INL_H
#undef HANJI_COMPUTE_VECTORS_INL_H
#else
#define HANJI_COMPUTE_VECTORS_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

#include "hanji/compute/internal/number.h"

HWY_BEFORE_NAMESPACE();
namespace hanji::compute::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* p) {
  const hn::Rebind<uint32_t, D> words;
  const hn::Rebind<uint16_t, D> halves;
  const auto bits = hn::PromoteTo(words, hn::LoadU(halves, &p->bits));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}

/// Rounds to nearest even; a NaN stays one.
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D, BFloat16* p) {
  const hn::Rebind<uint32_t, D> words;
  const hn::Rebind<uint16_t, D> halves;
  const auto bits = hn::BitCast(words, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7FFF)));
  const auto nan = hn::RebindMask(words, hn::IsNaN(v));
  const auto kept = hn::IfThenElse(nan, hn::Set(words, 0x7FC00000), rounded);
  hn::StoreU(hn::TruncateTo(halves, hn::ShiftRight<16>(kept)), halves, &p->bits);
}

template <class D, class T>
HWY_INLINE hn::Vec<D> load_first(D d, const T* p, size_t count) {
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(T)] = {};
  std::memcpy(padded, p, count * sizeof(T));
  return load(d, padded);
}

template <class D, class T>
HWY_INLINE void store_first(hn::Vec<D> v, D d, T* p, size_t count) {
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(T)];
  store(v, d, padded);
  std::memcpy(p, padded, count * sizeof(T));
}

/// Reads and writes whole vectors at a column.
template <class D>
struct Whole {
  D d;
  template <class T>
  HWY_INLINE hn::Vec<D> read(const T* p) const {
    return load(d, p);
  }
  template <class T>
  HWY_INLINE void write(hn::Vec<D> v, T* p) const {
    store(v, d, p);
  }
  HWY_INLINE hn::Vec<D> keep(hn::Vec<D> v) const { return v; }
};

/// Reads and writes the last columns of a row; the lanes beyond read as zero.
template <class D>
struct Last {
  D d;
  size_t count;
  template <class T>
  HWY_INLINE hn::Vec<D> read(const T* p) const {
    return load_first(d, p, count);
  }
  template <class T>
  HWY_INLINE void write(hn::Vec<D> v, T* p) const {
    store_first(v, d, p, count);
  }
  HWY_INLINE hn::Vec<D> keep(hn::Vec<D> v) const {
    return hn::IfThenElseZero(hn::FirstN(d, count), v);
  }
};

/// body(column, access) over 0..columns, vector by vector.
template <class D, class Body>
HWY_INLINE void for_columns(D d, int64_t columns, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t column = 0;
  for (; column + lanes <= columns; column += lanes) body(column, Whole<D>{d});
  if (column < columns) body(column, Last<D>{d, static_cast<size_t>(columns - column)});
}

template <class D>
HWY_INLINE hn::TFromD<D> sum_of(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

}  // namespace HWY_NAMESPACE
}  // namespace hanji::compute::internal
HWY_AFTER_NAMESPACE();

#endif
