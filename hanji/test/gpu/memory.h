#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

namespace hanji::test::gpu {

/// The memory of the device of this thread: the host's, filled with NaNs, in blocks of 512 bytes, each
/// reported as one of the device. Errors of size are those of CUDA: FAKE_GPU_BYTES limits it.
c10::Allocator* device_memory();

/// Memory of the host that copies to and from the device need not wait for.
c10::Allocator* pinned_memory();
bool is_pinned(const void* data);

/// What a kernel of the host has made becomes memory of the device, where it is.
c10::Storage adopt(const c10::Storage& host, c10::Device device);

}  // namespace hanji::test::gpu
