#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/checkpoint/safetensors.h"

namespace hanji::checkpoint {

enum class DifferenceKind : uint8_t { kOnlyInFirst, kOnlyInSecond, kForm, kValues, kBytes };

/// "only in the first", "only in the second", "type or shape", "values", "bytes": the last for an element type
/// that hanji does not read.
std::string_view name_of(DifferenceKind kind);

/// How a tensor of one file differs from its namesake in another.
struct Difference {
  std::string tensor;
  DifferenceKind kind = DifferenceKind::kValues;
  int64_t num_elements = 0;   ///< kValues: elements whose bits differ.
  int64_t first_element = 0;  ///< kValues: the first of them, in C order.
  double largest = 0;         ///< kValues: largest absolute difference; NaN if one side has a NaN.
  /// kValues: the most representable numbers that lie between the two sides, both zeros being one;
  /// NaN as above, 0 for integers.
  double largest_ulps = 0;
};

/// The tensors that differ by a bit or more, sorted by name; empty when both files hold the same.
/// Cost    one pass over both.
std::vector<Difference> diff(const SafetensorsFile& first, const SafetensorsFile& second);
std::vector<Difference> diff(std::span<const NamedTensor> first,
                             std::span<const NamedTensor> second);
std::vector<Difference> diff(std::span<const SavedTensor> first,
                             std::span<const SavedTensor> second);

}  // namespace hanji::checkpoint
