#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// What the stand-in for a GPU has seen, in this process. A test that loads the library finds these
/// by dlsym(RTLD_DEFAULT, ..); one that preloads it into a program reads the file that is written
/// when a process that used the device ends, if FAKE_GPU_COUNTS names one: "NAME.PID".
///
/// Names  "operations", "synchronizations", "bytes_to_device", "bytes_to_host", "bytes", "peak_bytes",
///        and of one cause "synchronizations aten::item": the host waited for the device because of it.
/// Thread any.
extern "C" {
int64_t fake_gpu_count(const char* name);
/// All to 0, but for the bytes that are there now.
void fake_gpu_reset();
}

namespace hanji::test::gpu {

/// The operation `name` ran on the device.
void count_operation(const std::string& name);
/// The host waits for the device.
void count_synchronization(const std::string& why);
void count_copy_to_device(size_t bytes);
void count_copy_to_host(size_t bytes);

struct Memory {
  int64_t bytes = 0;  ///< After the change.
};
/// Memory of the device was taken, or given back if `bytes` is negative.
Memory count_memory(int64_t bytes);

}  // namespace hanji::test::gpu
