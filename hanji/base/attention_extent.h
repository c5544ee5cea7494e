#pragma once

#include <algorithm>
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

/// The same of attention by products of bf16 tiles. A product has kQueries columns, those of that many
/// queries, and the rows of at most kKeys keys; lengths and heads are padded to multiples of kQueries.
struct TileAttentionExtent {
  static constexpr int64_t kQueries = 32;
  static constexpr int64_t kBand =
      128;  ///< Queries of one product into gradients of keys and values.
  static constexpr int64_t kKeys = 256;

  int64_t rows = 0, columns = 0, size = 0;
  int64_t keys = 0;  ///< Rows of the largest product.

  static constexpr TileAttentionExtent of(int64_t length, int64_t head_size) {
    const int64_t rows = AttentionExtent::round_up(length, kQueries);
    const int64_t keys = std::min(rows, kKeys);
    return {rows, AttentionExtent::round_up(rows, keys),
            AttentionExtent::round_up(head_size, kQueries), keys};
  }

  /// Float32 elements of the scratch of one head, of one thread. Two numbers of bf16 are one.
  constexpr int64_t forward_elements() const {
    const int64_t of_keys = (rows + columns) / 2 * size;
    return of_keys + 3 * size * kQueries + (keys + keys / 2) * kQueries;
  }
  constexpr int64_t backward_elements() const {
    const int64_t of_keys = (2 * rows + columns) / 2 * size + 2 * rows * size;
    const int64_t of_band = kBand * size + rows * kBand;
    return of_keys + of_band + 4 * size * kQueries + (2 * rows + keys / 2) * kQueries;
  }
};

}  // namespace hanji::base
