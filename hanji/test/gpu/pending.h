#pragma once

#include <ATen/core/Tensor.h>

namespace hanji::test::gpu {

/// Copies between pinned memory and the device that the host did not wait for. On a GPU they run later:
/// until the host has waited for something, what the host reads at the end of one is not there (NaN
/// here), and what it writes at the beginning of one may be copied instead.
///
/// Thread  any.

/// `host` was read by a copy to the device.
void begin_copy_to_device(const at::Tensor& host);
/// `host` gets its values, which it has by now, when the host waits.
void begin_copy_to_host(const at::Tensor& host);
/// The host has waited: all copies are over.
/// Errors  throws if the host has written what a copy read.
void end_copies();

}  // namespace hanji::test::gpu
