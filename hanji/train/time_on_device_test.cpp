#include "hanji/train/time_on_device.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>

#include "hanji/base/clock.h"
#include "hanji/compute/device.h"
#include "hanji/plan/load_config.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/gpu_times.h"

namespace hanji::train {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;

constexpr compute::GpuProbe kSmall{.side = 64, .copy_bytes = 1 << 16, .host_bytes = 1 << 16};

/// A small job of one rank that computes on a device of its own.
struct Job {
  explicit Job(const std::string& preset) {
    const std::vector<plan::Override> overrides = {{"model.preset=" + preset}};
    plan::Config config = plan::parse_config("", "run.toml", overrides).config;
    config.run.ranks = 1;
    config.compute.device = plan::Device::kCuda;
    config.data.vocabulary = plan::VocabularyKind::kByte;
    if (preset == "resnet-tiny") {
      config.data.image_size = 12;
      config.data.image_count = 500;
    }
    workload = {open_dataset(config).or_throw()};
    inputs.config = config;
    inputs.data = workload.dataset.facts();
    inputs.machine.physical_cores = inputs.machine.usable_cores = 2;
    inputs.machine.memory_bytes = inputs.machine.available_bytes = int64_t{8} << 30;
    inputs.kernels.attention = plan::Attention::kFlash;
    inputs.gpus = {.count = 1, .free_bytes = int64_t{8} << 30};
    if (preset == "resnet-tiny") inputs.model = count_facts(config, workload);
    plan = plan::make_plan(inputs).or_throw();
  }

  Workload workload;
  plan::PlanInputs inputs;
  plan::Plan plan;
};

DeviceTiming on_cpu(double seconds = 0.3) {
  return {.device = c10::kCPU,
          .clock = compute::device_clock(c10::kCPU),
          .operations_seconds = seconds,
          .rates_seconds = 0.05,
          .probe = kSmall};
}

const auto named = [](const char* part) {
  return Contains(Field(&plan::TimedOperation::name, HasSubstr(part)));
};

TEST(TimeOnDevice, OfAGptTimesTheOperationsThatItsFactsNameAndTheCopyOfTheBatch) {
  const Job job("nano");
  const plan::OperationTimes times = time_on_device({job.plan, job.workload}, on_cpu());
  for (const char* one : {"product ", "attention ", "loss ", "copy of a batch"}) {
    EXPECT_THAT(times.operations, named(one));
  }
  for (const plan::TimedOperation& one : times.operations) {
    EXPECT_GT(one.seconds, 0) << one.name;
    EXPECT_GE(one.launch, 0) << one.name;
  }
  EXPECT_GT(times.launches_of(), 0);
  EXPECT_GT(times.update_seconds, 0);
  EXPECT_GT(times.sample_seconds, 0);
  EXPECT_EQ(times.samples, job.plan.micro_batch) << "whole";
  ASSERT_TRUE(times.gpu);
  EXPECT_GT(times.gpu->launch_seconds, 0);
}

TEST(TimeOnDevice, OfAnotherModelTimesWhatItsForwardAndBackwardCall) {
  const Job job("resnet-tiny");
  const plan::OperationTimes times = time_on_device({job.plan, job.workload}, on_cpu());
  EXPECT_THAT(times.operations, named("aten::convolution_backward "));
  EXPECT_THAT(times.operations, named("aten::copy_ [16,16,3,3] [16,16,3,3]"));
  for (const plan::TimedOperation& one : times.operations) EXPECT_GT(one.seconds, 0) << one.name;
}

TEST(TimeOnDevice, IsPricedByThePlanAndSurvivesItsJson) {
  Job job("nano");
  job.inputs.times = time_on_device({job.plan, job.workload}, on_cpu());
  const plan::Plan plan = plan::make_plan(job.inputs).or_throw();
  EXPECT_GT(plan.predicted.step_seconds, job.inputs.times.update_seconds);
  EXPECT_GT(plan.predicted.tokens_per_second, 0);
  EXPECT_EQ(plan::plan_from_json(plan::to_json(plan)).or_throw().times, plan.times);
}

/// A clock of a device that is as long busy as it was occupied, and behind that needs `ns_of_wait` until it has done
/// whatever was queued: the host runs on real time.
compute::DeviceClock clock_of_queue(int64_t ns_of_wait) {
  struct Line {
    int64_t late_ns = 0, busy_until = 0;
    int64_t now() const { return base::now_ns() + late_ns; }
  };
  const auto line = std::make_shared<Line>();
  return {[line] { return line->now(); },
          [line, ns_of_wait] {
            line->late_ns += std::max<int64_t>(0, line->busy_until - line->now()) + ns_of_wait;
          },
          [line](double seconds) {
            line->busy_until = line->now() + static_cast<int64_t>(seconds * 1e9);
          }};
}

TEST(TimeOnDevice, TellsAJobThatItsGpuBoundsFromOneThatItsLaunchesBound) {
  Job job("nano");
  const auto described = [&](int64_t ns_of_wait) {
    DeviceTiming timing = on_cpu(0.5);
    timing.clock = clock_of_queue(ns_of_wait);
    job.inputs.times = time_on_device({job.plan, job.workload}, timing);
    return plan::describe(plan::make_plan(job.inputs).or_throw());
  };
  EXPECT_THAT(described(1'000'000'000), testing::ContainsRegex("bound by +the GPU"));
  EXPECT_THAT(described(0), testing::ContainsRegex("bound by +launches"));
}

TEST(TimeOnDevice, StopsAtItsBudgetAndPricesTheRestByTheNearest) {
  const Job job("nano");
  const int64_t begin = base::now_ns();
  const plan::OperationTimes all = time_on_device({job.plan, job.workload}, on_cpu(0.3));
  const plan::OperationTimes few = time_on_device({job.plan, job.workload}, on_cpu(1e-4));
  EXPECT_LT(static_cast<double>(base::now_ns() - begin) * 1e-9, 15);
  ASSERT_EQ(few.operations.size(), all.operations.size());
  for (const plan::TimedOperation& one : few.operations) EXPECT_GT(one.seconds, 0) << one.name;
}

TEST(TimeOnGpu, WithoutOneSaysWhyNothingIsTimed) {
  if (compute::find_gpus().count > 0) GTEST_SKIP() << "this host has GPUs";
  const Job job("nano");
  const auto refused = time_on_gpu({job.plan, job.workload}, GpuTimer::kThisRank);
  ASSERT_FALSE(refused.ok());
  EXPECT_FALSE(refused.status().message().empty());
  EXPECT_THROW(time_gpu_job(plan::to_json(job.plan)), Error);
  EXPECT_THROW(time_gpu_job("no plan"), Error);
}

}  // namespace
}  // namespace hanji::train
