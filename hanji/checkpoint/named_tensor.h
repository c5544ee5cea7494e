#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/dtype.h"

namespace hanji::checkpoint {

/// A tensor as files know it: a view of dense, little-endian bytes in C order.
struct NamedTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape = {};
  std::span<const std::byte> bytes = {};
};

/// A tensor whose bytes lie in runs of its elements, in C order and without gaps.
struct SavedTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape = {};
  std::vector<std::span<const std::byte>> runs = {};

  int64_t num_bytes() const;
};

/// The same tensors, each in one run.
std::vector<SavedTensor> in_one_run(std::span<const NamedTensor> tensors);

/// Bytes that a dense tensor takes; nothing for a negative length or a product beyond 2^63 - 1.
std::optional<int64_t> dense_bytes(DType dtype, std::span<const int64_t> shape);

/// "float32 [4, 128]".
std::string describe(DType dtype, std::span<const int64_t> shape);

}  // namespace hanji::checkpoint
