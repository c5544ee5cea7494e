#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "hanji/checkpoint/load.h"
#include "hanji/checkpoint/save.h"

namespace hanji::checkpoint::internal {

/// Where a test that saves hundreds of times puts its folders: memory, if the system offers some, as
/// each save waits for the disk many times.
inline std::filesystem::path folder_in_memory() {
  std::error_code error;
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::is_directory(memory, error) ? memory
                                                      : std::filesystem::temp_directory_path();
}

/// A small training state whose every byte follows from `seed`: three element types, a scalar, an
/// empty tensor, an odd length.
class TestState {
 public:
  explicit TestState(uint32_t seed) : word_(seed * 2654435761u + 1) {
    add(model_, "head.weight", DType::kFloat32, {4, 128});
    add(model_, "block.0.bias", DType::kBFloat16, {17});
    add(model_, "steps", DType::kInt64, {});
    add(model_, "none", DType::kFloat32, {0, 3});
    add(optimizer_, "first_moment", DType::kFloat32, {4, 128});
    add(optimizer_, "second_moment", DType::kFloat32, {4, 128});
  }
  TestState(const TestState&) = delete;

  State state() const { return {parts_of(model_), parts_of(optimizer_)}; }
  const std::vector<NamedTensor>& model() const { return model_; }
  const std::vector<NamedTensor>& optimizer() const { return optimizer_; }
  /// The bytes of the first tensor, to be changed behind the state's back.
  std::vector<std::byte>& first_bytes() { return storage_.front(); }

 private:
  void add(std::vector<NamedTensor>& group, std::string name, DType dtype,
           std::vector<int64_t> shape) {
    auto& bytes = storage_.emplace_back(static_cast<size_t>(*dense_bytes(dtype, shape)));
    for (std::byte& byte : bytes) {
      word_ = word_ * 1664525 + 1013904223;  // Numerical Recipes' generator
      byte = static_cast<std::byte>(word_ >> 24);
    }
    group.push_back({std::move(name), dtype, std::move(shape), bytes});
  }

  uint32_t word_;
  std::deque<std::vector<std::byte>> storage_;
  std::vector<NamedTensor> model_, optimizer_;
};

inline bool holds(const std::vector<SavedTensor>& saved, const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& tensor : tensors) {
    const auto found = std::ranges::find(saved, tensor.name, &SavedTensor::name);
    if (found == saved.end() || found->dtype != tensor.dtype || found->shape != tensor.shape) {
      return false;
    }
    std::vector<std::byte> bytes;
    for_each_run(*found, {0, found->num_elements()}, [&](int64_t, std::span<const std::byte> run) {
      bytes.insert(bytes.end(), run.begin(), run.end());
    });
    if (!std::ranges::equal(bytes, tensor.bytes)) return false;
  }
  return saved.size() == tensors.size();
}

/// True when `checkpoint` holds exactly the bytes of `state`.
inline bool holds(const Checkpoint& checkpoint, const TestState& state) {
  return holds(checkpoint.model, state.model()) && holds(checkpoint.optimizer, state.optimizer());
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

inline void write_bytes(const std::filesystem::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

}  // namespace hanji::checkpoint::internal
