#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/checkpoint/named_tensor.h"
#include "hanji/checkpoint/safetensors.h"

namespace torch::nn {
class Module;
}

namespace hanji::checkpoint {

/// A torch tensor under the name that files give it.
struct TensorEntry {
  std::string name;
  at::Tensor tensor;
};

/// The module's parameters under their dotted names, in order of registration.
std::vector<TensorEntry> parameters_of(const torch::nn::Module& module);

/// The module's parameters, then its buffers.
std::vector<TensorEntry> state_of(const torch::nn::Module& module);

/// Errors  throws Error(kUnsupported) for an element type that files do not have.
DType dtype_of(const at::Tensor& tensor);

/// Views of the tensors' bytes, valid as long as the tensors are.
/// Errors  kUnsupported, naming the tensor, for one that is not dense, contiguous, on the CPU, or
///         of an element type that files speak.
Result<std::vector<NamedTensor>> views_of(std::span<const TensorEntry> entries);

/// Copies the tensors of a file into `entries`: all of them, or none.
///
/// Errors  kMismatch, listing every tensor that is missing (with the nearest name), left over, or
///         of another type or shape, when names, types and shapes are not exactly the same.
Status copy_into(std::span<const SavedTensor> saved, std::span<const TensorEntry> entries,
                 std::span<const ForeignTensor> foreign = {});
Status copy_into(const SafetensorsFile& file, std::span<const TensorEntry> entries);

/// Compares the tensors that a file has with those that are needed, without their bytes. Those of `foreign`
/// are named with their types, whether needed or left over.
/// Errors  kMismatch, as copy_into().
Status check_forms(std::span<const SavedTensor> saved, std::span<const TensorForm> wanted,
                   std::span<const ForeignTensor> foreign = {});

}  // namespace hanji::checkpoint
