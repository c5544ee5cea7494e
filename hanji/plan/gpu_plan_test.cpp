#include <gmock/gmock.h>

#include "hanji/plan/plan.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using test_plan::made;
using test_plan::two_cores;
using testing::HasSubstr;
using testing::Not;

/// Three GPUs of 4 GiB beside the two cores.
PlanInputs three_gpus() {
  PlanInputs inputs = two_cores();
  inputs.config.compute.device = Device::kCuda;
  inputs.kernels.gemm = Gemm::kMkl;
  inputs.kernels.attention = Attention::kFlash;
  inputs.gpus = {.count = 3, .free_bytes = int64_t{4} << 30};
  return inputs;
}

TEST(MakePlanForGpus, EachRankTakesOneAndNcclJoinsThem) {
  const Plan plan = made(three_gpus());
  EXPECT_EQ(plan.ranks, 3);
  EXPECT_EQ(plan.config.comm.engine, Engine::kNccl);
  const std::string text = describe(plan);
  EXPECT_THAT(text, HasSubstr("3 ranks of 1 thread, a GPU each"));
  EXPECT_THAT(text, HasSubstr("engine nccl"));
  EXPECT_THAT(text, HasSubstr("activations (cuda)"));
  EXPECT_THAT(text, HasSubstr("checkpoint copy (host)"));
  EXPECT_THAT(text, HasSubstr("no time is predicted"));
  EXPECT_TRUE(plan_from_json(to_json(plan)).ok());
}

/// Times of 16 samples on one GPU: 40 ms of operations, and `launch` seconds for each of 10 of them.
PlanInputs timed_gpu(double launch) {
  PlanInputs inputs = three_gpus();
  inputs.config.run.ranks = 1;
  inputs.times = {.samples = 16,
                  .operations = {{"product", 10, 4e-3, 0, launch}},
                  .update_seconds = 3e-3,
                  .gpu = topology::GpuRates{.device = "NVIDIA H200",
                                            .date = "2026-01-31",
                                            .bf16_flops = 640e12,
                                            .float32_flops = 45e12,
                                            .memory_bytes_per_second = 4e12,
                                            .host_bytes_per_second = 50e9,
                                            .launch_seconds = 4e-6,
                                            .read_seconds = 1e-5}};
  return inputs;
}

TEST(MakePlanForGpus, AStepTakesTheLongerOfItsOperationsAndTheirLaunches) {
  const double rest = 3e-3 + 1e-5;  // the update, and the loss that is read
  const Plan by_device = made(timed_gpu(4e-6));
  EXPECT_NEAR(by_device.predicted.compute_seconds, 40e-3 + rest, 1e-9);
  EXPECT_NEAR(by_device.predicted.step_seconds, 40e-3 + rest, 1e-9);
  EXPECT_THAT(describe(by_device), testing::ContainsRegex("bound by +the GPU"));
  const Plan by_host = made(timed_gpu(9e-3));
  EXPECT_NEAR(by_host.predicted.compute_seconds, 90e-3 + rest, 1e-9);
  EXPECT_THAT(describe(by_host), testing::ContainsRegex("bound by +launches"));
}

TEST(MakePlanForGpus, LaunchesGrowWithMicroBatchesAndOperationsWithSamples) {
  PlanInputs inputs = timed_gpu(9e-3);
  inputs.config.train.micro_batch = 8;
  inputs.times.samples = 8;
  const Plan plan = made(inputs);
  const double gradients = 4 * static_cast<double>(plan.model.num_parameters());
  const double accumulated = 3 * gradients / 4e12;
  EXPECT_NEAR(plan.predicted.compute_seconds, 2 * 90e-3 + 3e-3 + 1e-5 + accumulated, 1e-9);
}

TEST(MakePlanForGpus, NameTheGpuThatWasMeasuredAndWhatIsNotPredicted) {
  const std::string one = describe(made(timed_gpu(4e-6)));
  EXPECT_THAT(one, HasSubstr("measured on NVIDIA H200, 2026-01-31:"));
  EXPECT_THAT(one, HasSubstr("products 640 TF/s in bf16, 45 TF/s in float32; memory 4 TB/s;"));
  EXPECT_THAT(one, Not(HasSubstr("transfer")));
  EXPECT_THAT(one, Not(HasSubstr("collectives of a rank")));
  PlanInputs inputs = timed_gpu(4e-6);
  inputs.config.run.ranks = 2;
  EXPECT_THAT(describe(made(inputs)), HasSubstr("NCCL is not timed"));
}

TEST(MakePlanForGpus, KeepTheirTimesInTheirJson) {
  const Plan plan = made(timed_gpu(4e-6));
  EXPECT_EQ(plan_from_json(to_json(plan)).or_throw().times, plan.times);
}

TEST(MakePlanForGpus, TheBatchesOfTwoStepsLieOnEach) {
  const Plan plan = made(three_gpus());
  EXPECT_EQ(line_bytes(plan.memory, "batches"), 2 * line_bytes(plan.memory, "data"));
}

TEST(MakePlanForGpus, MoreRanksThanGpusAreRefused) {
  PlanInputs inputs = three_gpus();
  inputs.config.run.ranks = 4;
  const auto refused = make_plan(inputs);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("4 ranks and 3 visible GPUs"));
  EXPECT_THAT(refused.status().message(), HasSubstr("set run.ranks = 3"));
  inputs.config.run.ranks = kAuto;
  inputs.gpus.count = 0;
  EXPECT_THAT(make_plan(inputs).status().message(), HasSubstr("set compute.device = \"cpu\""));
}

TEST(MakePlanForGpus, MemoryIsThatOfAGpuAndNotOfTheHost) {
  PlanInputs inputs = three_gpus();
  inputs.config.run.ranks = 1;
  inputs.config.train.micro_batch = kAuto;
  const int64_t roomy = made(inputs).micro_batch;
  inputs.gpus.free_bytes = device_bytes(made(inputs).memory);  // of which a plan takes four fifths
  EXPECT_LT(made(inputs).micro_batch, roomy);
  inputs.machine.available_bytes = 1;
  EXPECT_LT(made(inputs).micro_batch, roomy);
  inputs.gpus.free_bytes = 0;  // unknown
  EXPECT_EQ(made(inputs).micro_batch, roomy);
}

}  // namespace
}  // namespace hanji::plan
