#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "hanji/compute/device_clock.h"
#include "hanji/compute/measure_gpu.h"
#include "hanji/plan/operation_times.h"
#include "hanji/train/time_operations.h"

namespace hanji::train {

/// Where a job is timed, and how long.
struct DeviceTiming {
  c10::Device device;
  compute::DeviceClock clock;
  int64_t max_bytes = int64_t{2} << 30;  ///< Tensors of one operation, and of an update.
  double operations_seconds = 3;
  double rates_seconds = 0.6;
  compute::GpuProbe probe = {};
};

/// What time_operations() finds, of a job whose ranks compute on a device of their own: the same operations, each
/// by the seconds of the device and by those in which its host queues it, the copy of a micro-batch from pinned
/// memory among them; the norm and the update, until the device is done; the reading of samples, by this process
/// alone; and the rates of the device. A micro-batch is timed whole. No layer is told from another.
///
/// The host's side of a forward and backward is without the start of autograd's engine, which a step pays once.
///
/// Cost    at most 5 s of timing, besides the start of the device and its libraries and, of a model that does not
///         name its operations, one forward and backward. What is left on the device is freed.
/// Errors  throws what the model, the data and libtorch throw.
plan::OperationTimes time_on_device(const TimingJob& job, const DeviceTiming& timing);

}  // namespace hanji::train
