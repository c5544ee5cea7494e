#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace hanji::parallel {

/// Returns a contiguous tensor without memory; reading or writing it throws `why`.
at::Tensor without_memory(at::IntArrayRef sizes, const at::TensorOptions& options, std::string why);
/// Whether a tensor is such a one, and has no memory now.
bool is_without_memory(const at::Tensor& tensor);
/// Sets and removes the memory of such a CPU tensor.
void lend_memory(const at::Tensor& tensor, void* data);
void take_memory(const at::Tensor& tensor, std::string why);
/// Ends that access to a storage throws: takes back its release_data_and_set_meta_custom_data_ptr_error_msg_().
void allow_access(c10::StorageImpl& storage);

}  // namespace hanji::parallel
