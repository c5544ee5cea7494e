#include "hanji/train/gpu_times.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>

#include "hanji/base/at_end.h"
#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/compute/device.h"
#include "hanji/launch/run_program.h"
#include "hanji/train/time_on_device.h"

namespace hanji::train {
namespace {

constexpr std::chrono::seconds kLongest{90};

plan::OperationTimes time_here(const TimingJob& job) {
  const compute::Gpus gpus = compute::find_gpus();
  const c10::Device device = compute::gpu_of(0, gpus).or_throw();
  compute::use_gpu(device, job.plan.config.train.bits == plan::Bits::kFast
                               ? compute::Repeatable::kNo
                               : compute::Repeatable::kYes);
  DeviceTiming timing{.device = device, .clock = compute::device_clock(device)};
  if (gpus.free_bytes > 0) timing.max_bytes = std::min(4 * timing.max_bytes, gpus.free_bytes / 4);
  return time_on_device(job, timing);
}

Result<plan::OperationTimes> time_in_program(const plan::Plan& plan) {
  HANJI_ASSIGN_OR_RETURN(const auto program, base::executable_path());
  HANJI_ASSIGN_OR_RETURN(const std::string times,
                         launch::run_program({program.string(), std::string(kTimeGpuVerb)},
                                             plan::to_json(plan), base::Deadline::after(kLongest)));
  return plan::operation_times_from_json(times);
}

/// The device's own generator, as KeptGenerator keeps the CPU's.
plan::OperationTimes time_as_rank(const TimingJob& job) {
  at::Generator generator = at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, 0));
  const at::Tensor former = generator.get_state();
  const base::AtEnd restore([&] {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(former);
  });
  return time_here(job);
}

}  // namespace

Result<plan::OperationTimes> time_on_gpu(const TimingJob& job, GpuTimer timer) {
  if (timer == GpuTimer::kProgram) return time_in_program(job.plan);
  try {
    return time_as_rank(job);
  } catch (const std::exception& error) {
    return base::internal(error.what());
  }
}

std::string time_gpu_job(const std::string& plan_json) {
  const plan::Plan plan = plan::plan_from_json(plan_json).or_throw();
  const Workload workload{open_dataset(plan.config).or_throw()};
  return plan::to_json(time_here({plan, workload}));
}

}  // namespace hanji::train
