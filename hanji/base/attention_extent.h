#pragma once

#include <cstdint>

#include "hanji/base/simd.h"

namespace hanji::base {

/// Bytes of a vector of hanji's own kernels.
constexpr int64_t vector_bytes(Simd level) {
  switch (level) {
    case Simd::kAvx512: return 64;
    case Simd::kAvx2: return 32;
    case Simd::kBaseline: return 16;
  }
  return 16;
}

/// Lengths and row strides, in elements, of the scratch of hanji's blocked attention: rows are padded to
/// whole bands of queries, columns and heads to panels of two vectors.
struct AttentionExtent {
  static constexpr int64_t kGroup = 8;  ///< Rows per softmax group.
  static constexpr int64_t kBand = 64;  ///< Queries per backward band.

  int64_t length = 0, rows = 0, columns = 0, size = 0, band = 0;

  /// `panel`: elements of two vectors.
  static constexpr AttentionExtent of(int64_t length, int64_t size, int64_t panel) {
    const int64_t rows = round_up(length, kBand), columns = round_up(rows, panel);
    return {length, rows, columns, round_up(size, panel), columns + 16};
  }
  static constexpr int64_t round_up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
  }

  /// Elements of the scratch of one head, of one thread.
  constexpr int64_t forward_elements() const {
    return (2 * rows + columns) * size + kGroup * (band + size);
  }
  constexpr int64_t backward_elements() const {
    return (6 * rows + 2 * columns + kGroup) * size + 2 * kBand * band;
  }
};

}  // namespace hanji::base
