#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hanji/plan/operation_times.h"
#include "hanji/train/time_operations.h"

namespace hanji::train {

/// The hidden verb of the command that runs time_gpu_job().
inline constexpr std::string_view kTimeGpuVerb = "time-gpu";

/// Which process has the device's memory, and its errors, while a job is timed.
enum class GpuTimer : uint8_t {
  /// The command starts itself with kTimeGpuVerb. A process that has used a GPU keeps some hundred MiB of it to its
  /// end, and can start no other by fork alone: so the timer is a program of its own, which has ended before any
  /// rank starts. The plan's ranks find all memory free, and an error of the device, after which CUDA serves a
  /// process no more, ends the timer only.
  kProgram,
  /// This process, which is a rank and uses its GPU anyway. What was taken is freed, and the device's generator of
  /// random numbers goes on as if nothing had drawn.
  kThisRank,
};

/// Times the operations of a plan, its update and the reading of samples on this host's first GPU, by
/// time_on_device() with the kernels that its ranks may take. Cost: at most 5 s of timing, and the start of a
/// program with libtorch.
/// Errors  those of the program, or of the model and the device; kTimeout after a minute and a half.
Result<plan::OperationTimes> time_on_gpu(const TimingJob& job, GpuTimer timer);

/// What the verb does: times the job of a plan's JSON and gives the times' JSON.
/// Errors  as time_on_gpu(), thrown.
std::string time_gpu_job(const std::string& plan_json);

}  // namespace hanji::train
