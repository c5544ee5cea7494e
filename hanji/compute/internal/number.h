#pragma once

#include <cstdint>

namespace hanji::compute::internal {

/// The upper half of a float; the same bytes as c10::BFloat16, without torch.
struct BFloat16 {
  uint16_t bits;
};

/// What a storage type is computed in.
template <class T>
struct Computed {
  using Type = T;
};
template <>
struct Computed<BFloat16> {
  using Type = float;
};
template <class T>
using ComputedIn = typename Computed<T>::Type;

/// Rows whose contributions to a column sum are added one after another; the sums of such
/// groups are then added in order, so the result does not depend on threads.
inline constexpr int64_t kRowsPerSum = 32;

inline constexpr int64_t num_sums(int64_t rows) { return (rows + kRowsPerSum - 1) / kRowsPerSum; }

}  // namespace hanji::compute::internal
