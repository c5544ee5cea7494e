#include "hanji/comm/host_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/internal/state.h"

namespace hanji::comm {

c10::Device device_of(const Group& group) { return group.state()->engine().device(); }

void all_reduce_on_host(at::Tensor& values, const Group& group, const AllReduceOptions& options,
                        std::source_location call_site) {
  if (group.serves(values.device())) {
    all_reduce(values, group, options, call_site).wait();
    return;
  }
  // Nothing comes from elsewhere, and the host need not wait for the device.
  if (group.size() == 1 && options.factor == 1) return;
  at::Tensor there = values.to(device_of(group), /*non_blocking=*/true);
  all_reduce(there, group, options, call_site).wait();
  values.copy_(there);
}

void all_gather_on_host(at::Tensor& output, const at::Tensor& input, const Group& group,
                        const CallOptions& options, std::source_location call_site) {
  if (group.serves(input.device())) {
    all_gather(output, input, group, options, call_site).wait();
    return;
  }
  if (group.size() == 1) {
    output.copy_(input.view_as(output));
    return;
  }
  const at::Tensor mine = input.to(device_of(group), /*non_blocking=*/true);
  at::Tensor all = at::empty(output.sizes(), mine.options());
  all_gather(all, mine, group, options, call_site).wait();
  output.copy_(all);
}

at::Tensor zeros_on(c10::Device device, at::IntArrayRef sizes, c10::ScalarType dtype,
                    const Group& group, std::string_view category) {
  if (device.is_cpu()) return group.heap().zeros(sizes, dtype, category);
  return at::zeros(sizes, at::TensorOptions(dtype).device(device));
}

}  // namespace hanji::comm
