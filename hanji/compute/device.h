#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "hanji/base/status.h"

namespace hanji::compute {

/// The GPUs that this process may compute on.
struct Gpus {
  int count = 0;
  int64_t free_bytes = 0;  ///< Of the one that has least, as the driver's library says; 0: unknown.
  std::string why_none;    ///< One clause; empty if there are any.
};

/// What this libtorch sees; makes nothing on a GPU.
Gpus find_gpus();

/// Whether a run on GPUs can begin here.
/// Errors  kUnsupported with the reason and a way out.
Status check_gpus(const Gpus& gpus);

/// The GPU of the rank with that index on its host.
/// Errors  as check_gpus(), and kInvalidArgument for an index beyond them.
Result<c10::Device> gpu_of(int local_rank, const Gpus& gpus);

/// Whether the same call gives the same bits again.
enum class Repeatable : bool { kNo, kYes };

/// Makes `device` this thread's own and sets, for the whole process, whether libtorch may take
/// kernels whose bits change from call to call. Only `hanji train` calls it, before anything is
/// made on the device.
void use_gpu(c10::Device device, Repeatable repeatable);

}  // namespace hanji::compute
