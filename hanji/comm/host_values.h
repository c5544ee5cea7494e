#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>
#include <string_view>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"

namespace hanji::comm {

/// Where the tensors lie that the group moves: the CPU, or this rank's GPU.
c10::Device device_of(const Group& group);

/// all_reduce() of a few values on the CPU over any engine, waited for: where the engine moves
/// tensors of another device only, they go there and back.
///
/// Cost    on such an engine the host waits for the device, unless the group has one rank.
/// Errors  as all_reduce() and Work::wait().
void all_reduce_on_host(at::Tensor& values, const Group& group, const AllReduceOptions& options,
                        std::source_location call_site = std::source_location::current());

/// The same of all_gather().
void all_gather_on_host(at::Tensor& output, const at::Tensor& input, const Group& group,
                        const CallOptions& options,
                        std::source_location call_site = std::source_location::current());

/// Zeros on `device` that the group's collectives move in place: in its heap where that is the CPU,
/// counted as `category`, else in the device's own memory.
at::Tensor zeros_on(c10::Device device, at::IntArrayRef sizes, c10::ScalarType dtype,
                    const Group& group, std::string_view category);

}  // namespace hanji::comm
