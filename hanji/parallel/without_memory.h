#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace hanji::parallel {

/// A contiguous tensor without memory: to read or write it throws `why`.
at::Tensor without_memory(at::IntArrayRef sizes, const at::TensorOptions& options, std::string why);
/// Gives one on the CPU memory, and takes that away again.
void lend_memory(const at::Tensor& tensor, void* data);
void take_memory(const at::Tensor& tensor, std::string why);

}  // namespace hanji::parallel
