#include "hanji/train/time_on_device.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "hanji/base/at_end.h"
#include "hanji/base/units.h"
#include "hanji/compute/apply.h"
#include "hanji/lens/generator_state.h"
#include "hanji/plan/model_family.h"
#include "hanji/train/job_operations.h"
#include "hanji/train/time_samples.h"
#include "hanji/train/timed_update.h"

namespace hanji::train {
namespace {

/// A GPU over the modest core of plan::estimated_seconds(): 20 TF/s, and 2 TB/s.
constexpr double kTimesACore = 200;
constexpr double kShortestCall = 10e-6;  ///< With its launch.
constexpr double kUpdateSeconds = 0.1;
constexpr double kEngineSeconds = 0.05;
/// Share of the operations' seconds that is divided out among all alike: the rest is by their estimates.
constexpr double kAlike = 0.4;

double seconds_since(const compute::DeviceClock& clock, int64_t begin_ns) {
  return static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
}

/// A batch's tensors, from memory that a device can read by itself.
RecordedOperation copy_of_batch(const TimingJob& job, int64_t samples, c10::Device device) {
  const layers::Batch batch = first_batch(job, samples);
  const auto bytes = static_cast<int64_t>(batch.inputs.nbytes() + batch.targets.nbytes());
  plan::Operation copy{
      .name = fmt::format("copy of a batch to the device, {}", base::format_bytes(bytes)),
      .estimate = plan::estimated_seconds(0, static_cast<double>(bytes))};
  const MakeCall make = [batch, device] {
    const auto pinned = [&](const at::Tensor& one) {
      return device.is_cpu() || one.numel() == 0 ? one : one.pin_memory();
    };
    const auto run = [inputs = pinned(batch.inputs), targets = pinned(batch.targets), device] {
      for (const at::Tensor& one : {inputs, targets}) {
        at::empty_like(one, one.options().device(device)).copy_(one, /*non_blocking=*/true);
      }
    };
    return OperationCall{[] {}, run, [] {}};
  };
  return {copy, make, bytes};
}

/// What a host pays for each backward beside its nodes, which is once in a step: of a graph of one node, less what
/// sixteen more show a node to take.
double engine_seconds(const DeviceTiming& timing) {
  constexpr int kMoreNodes = 16;
  const at::Tensor leaf =
      at::zeros({1}, at::TensorOptions(at::kFloat).device(timing.device)).set_requires_grad(true);
  const std::vector<at::Tensor> gradient{at::ones_like(leaf)};
  const auto seconds = [&](int nodes) {
    const auto run = [&] {
      at::Tensor last = leaf;
      for (int i = 0; i < nodes; ++i) last = last.neg();
      torch::autograd::backward({last}, gradient);
      leaf.mutable_grad().reset();
    };
    return compute::time_call(timing.clock, run, kEngineSeconds).launch;
  };
  const double one = seconds(1);
  const double node = (seconds(1 + kMoreNodes) - one) / kMoreNodes;
  return std::clamp(one - node, 0.0, one);
}

/// Times operations one after the other, the largest first, until the budget is spent.
class TimedCalls {
 public:
  TimedCalls(const std::vector<RecordedOperation>& all, const DeviceTiming& timing)
      : all_(all), timing_(timing), engine_(engine_seconds(timing)) {}

  std::vector<plan::CallSeconds> time(const std::vector<plan::Operation>& chosen, double budget) {
    const double sum = std::transform_reduce(chosen.begin(), chosen.end(), 0.0, std::plus(),
                                             [](const auto& one) { return one.estimate; });
    const auto count = static_cast<double>(chosen.size());
    const int64_t begin = timing_.clock.now_ns();
    std::vector<plan::CallSeconds> seconds(chosen.size());
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (i > 0 && seconds_since(timing_.clock, begin) > budget) break;
      const double share = kAlike / count + (1 - kAlike) * chosen[i].estimate / sum;
      seconds[i] = time_one(all_[chosen[i].index], share * budget / 2);
    }
    return seconds;
  }

 private:
  plan::CallSeconds time_one(const RecordedOperation& one, double budget) const {
    const OperationCall call = one.make();
    const compute::CallTime time = compute::time_call(
        timing_.clock,
        [&] {
          call.begin();
          call.end();
        },
        budget);
    const bool differentiates = one.operation.kind != plan::OperationKind::kRecorded &&
                                one.operation.kind != plan::OperationKind::kCopy;
    const double launch = time.launch - (differentiates ? std::min(engine_, time.launch) : 0);
    return {.seconds = std::max(one.scale * time.device, 1e-9), .launch = launch};
  }

  const std::vector<RecordedOperation>& all_;
  const DeviceTiming& timing_;
  const double engine_;
};

std::vector<plan::TimedOperation> timed_operations(const TimingJob& job,
                                                   const DeviceTiming& timing) {
  const int64_t samples = job.plan.micro_batch;
  const bool names_its_own = plan::family_of(job.plan.config.model).facts != nullptr;
  std::vector<RecordedOperation> all =
      names_its_own ? own_operations(job, samples, {timing.device, timing.max_bytes})
                    : seen_operations(job, samples, timing.device);
  all.push_back(copy_of_batch(job, samples, timing.device));
  std::vector<plan::Operation> operations;
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].operation.index = i;
    all[i].operation.estimate = all[i].operation.estimate / kTimesACore + kShortestCall;
    operations.push_back(all[i].operation);
  }
  TimedCalls calls(all, timing);
  return plan::time_operations(operations, timing.operations_seconds,
                               [&](const std::vector<plan::Operation>& chosen, double seconds) {
                                 return calls.time(chosen, seconds);
                               });
}

double update_seconds(const TimingJob& job, const DeviceTiming& timing) {
  const UpdatePart part = part_of_update(job.plan, timing.max_bytes / TimedUpdate::kBytesOfElement);
  if (part.sizes.empty()) return 0;
  TimedUpdate update(part.sizes, job.plan, timing.device);
  return part.scale * compute::time_until_done(
                          timing.clock, [&] { update.run(); }, kUpdateSeconds);
}

}  // namespace

plan::OperationTimes time_on_device(const TimingJob& asked, const DeviceTiming& timing) {
  const TimingJob job{asked.plan, asked.workload, 1};
  const compute::AppliedForAWhile kernels(job.plan.kernels, job.plan.threads);
  const lens::KeptGenerator generator;
  const base::AtEnd tidy([&] { compute::release_device_memory(timing.device); });
  plan::OperationTimes times{.samples = job.plan.micro_batch};
  times.gpu = compute::measure_gpu(timing.device, timing.clock, timing.rates_seconds, timing.probe);
  times.operations = timed_operations(job, timing);
  times.update_seconds = update_seconds(job, timing);
  times.sample_seconds = sample_seconds(job);
  times.sample_deviation = sample_deviation(job);
  times.sample_parts = sample_parts(job, times.sample_seconds);
  add_pages(job, times);
  return times;
}

}  // namespace hanji::train
