#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace hanji::test::gpu {

/// Throws as libtorch for CUDA does for tensors of several devices. Allowed are numbers (tensors
/// without dimensions) of the CPU that a pointwise operation reads.
void refuse_mixed_devices(const c10::OperatorHandle& operation,
                          c10::ArrayRef<c10::IValue> arguments);

/// Throws as libtorch for CUDA does where bits must repeat (Context::deterministicAlgorithms) and the
/// kernel adds in the order in which its threads come, or cuBLAS has no workspace of its own.
void refuse_changing_bits(const c10::OperatorHandle& operation,
                          c10::ArrayRef<c10::IValue> arguments);

/// Throws for an operation that libtorch has for CPUs alone.
void refuse_cpu_only(const c10::OperatorHandle& operation);

/// Whether the host must wait for the device to know the result or its size.
bool is_read_by_host(const c10::OperatorHandle& operation);

}  // namespace hanji::test::gpu
