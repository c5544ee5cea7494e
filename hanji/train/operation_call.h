#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

#include "hanji/base/kernel_choice.h"
#include "hanji/plan/operation_times.h"

namespace hanji::train {

/// An operation on tensors of its own, as a step calls it: results live on while others are made.
struct OperationCall {
  std::function<void()> before;  ///< Not timed: what the call before it in a step has just written.
  std::function<void()> begin;   ///< The forward, or the call.
  std::function<void()> end;     ///< The backward where it has one; results are freed.
};
using MakeCall = std::function<OperationCall()>;

/// Bytes that the tensors of one of hanji's own operations take, about.
int64_t tensor_bytes(const plan::Operation& operation);

/// The operation, or in place of one of more than so many tensor_bytes() as large a part of it as they allow, of
/// fewer samples, rows or columns; what `scale` of it takes as long, by its floating operations or elements.
struct OperationPart {
  plan::Operation operation;
  double scale = 1;
};
OperationPart part_within(const plan::Operation& operation, int64_t max_bytes);

/// Forward and backward of one of hanji's own operations by the kernels that were chosen.
/// Thread  the process multiplies as compute::apply() has set.
MakeCall own_call(const plan::Operation& operation, const base::KernelChoice& kernels,
                  c10::Device device = c10::kCPU);

}  // namespace hanji::train
