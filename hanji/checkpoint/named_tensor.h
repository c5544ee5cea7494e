#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/layout/part.h"

namespace hanji::checkpoint {

/// A tensor as files know it: a view of dense, little-endian bytes in C order.
struct NamedTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape = {};
  std::span<const std::byte> bytes = {};
};

/// Bytes of some of a tensor's elements, in their order.
struct SavedRuns {
  layout::StridedRange elements;
  std::span<const std::byte> bytes;
};

/// A tensor of which each element is in one of `runs`, in any order.
struct SavedTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape = {};
  std::vector<SavedRuns> runs = {};

  int64_t num_bytes() const;
  int64_t num_elements() const;
};

/// Elements of a saved tensor in C order: calls `visit` with each contiguous run of them and its place
/// in `elements`.
/// Cost    per run, the logarithm of the number of SavedRuns.
void for_each_run(const SavedTensor& saved, layout::Range elements,
                  const std::function<void(int64_t first, std::span<const std::byte>)>& visit);

/// The same tensors, each in one run.
std::vector<SavedTensor> in_one_run(std::span<const NamedTensor> tensors);

/// Bytes that a dense tensor takes; nothing for a negative length or a product beyond 2^63 - 1.
std::optional<int64_t> dense_bytes(DType dtype, std::span<const int64_t> shape);

/// "float32 [4, 128]".
std::string describe(DType dtype, std::span<const int64_t> shape);

}  // namespace hanji::checkpoint
