#include "hanji/train/time_operations.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "hanji/plan/load_config.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/stage_times.h"
#include "hanji/train/busy_ranks.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/operation_call.h"

namespace hanji::train {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;

plan::Plan timed_plan(const plan::Config& config, const Workload& workload) {
  plan::PlanInputs inputs{.config = config, .data = workload.dataset.facts()};
  inputs.machine.physical_cores = inputs.machine.usable_cores = 2;
  inputs.machine.memory_bytes = inputs.machine.available_bytes = int64_t{8} << 30;
  inputs.kernels.gemm = plan::Gemm::kMkl;
  inputs.kernels.attention = plan::Attention::kMath;
  const bool is_counted = config.model.preset == "resnet-tiny" || config.mesh.cp > 1;
  if (is_counted) inputs.model = count_facts(config, workload);
  if (plan::data_kind(config) == plan::DataKind::kPairs) {
    plan::Config sized = config;
    sized.model = plan::resolved(config.model);
    inputs.model = count_pair_facts(std::move(sized), workload.dataset.num_ids);
  }
  inputs.cut_axes = layout::kAxisNames;
  return plan::make_plan(inputs).or_throw();
}

plan::Config small_job(const std::string& preset) {
  const std::vector<plan::Override> overrides = {{"model.preset=" + preset}};
  plan::Config config = plan::parse_config("", "run.toml", overrides).config;
  config.run.ranks = 2;
  config.data.vocabulary = plan::VocabularyKind::kByte;
  if (preset != "resnet-tiny") return config;
  config.data.image_size = 12;
  config.data.image_count = 500;
  return config;
}

plan::OperationTimes times_of(const plan::Config& config) {
  const Workload workload{open_dataset(config).or_throw()};
  const plan::Plan plan = timed_plan(config, workload);
  return time_operations({plan, workload, 2});
}

const auto named = [](const char* part) {
  return Contains(Field(&plan::TimedOperation::name, HasSubstr(part)));
};

TEST(TimeOperations, OfAGptAreThoseThatItsFactsName) {
  const plan::OperationTimes times = times_of(small_job("nano"));
  EXPECT_THAT(times.operations, named("product "));
  EXPECT_THAT(times.operations, named("attention "));
  EXPECT_THAT(times.operations, named("loss "));
  for (const plan::TimedOperation& one : times.operations) EXPECT_GT(one.seconds, 0) << one.name;
  EXPECT_GT(times.update_seconds, 0);
  EXPECT_GT(times.sample_seconds, 0);
  EXPECT_EQ(times.samples, 8) << "a rank's half of 16";
}

/// Logits and the loss of a vocabulary of a million, and the table that it is embedded by.
TEST(TimeOperations, OfMoreThanTheirMemoryAPartIsTimed) {
  using plan::OperationKind;
  const plan::Config config = small_job("nano");
  const plan::Operation product{OperationKind::kProduct, "logits", 12, 64, 1'000'000, 128};
  const plan::Operation loss{OperationKind::kLoss, "loss", 12, 64, 1'000'000};
  const plan::Operation embedding{OperationKind::kEmbedding, "ids", 12, 64, 128, 1'000'000};
  const plan::Operation attention{OperationKind::kAttention, "grouped", 1, 65536, 8192, 64, 8};
  const plan::Operation ring{OperationKind::kAttention, "ring", 1, 65536, 64, 1, 0, 4};
  for (const plan::Operation& one : {product, loss, embedding, attention, ring}) {
    constexpr int64_t kMaxPart = int64_t{4} << 20;
    const OperationPart part = part_within(one, kMaxPart);
    EXPECT_LE(tensor_bytes(part.operation), kMaxPart) << one.name;
    EXPECT_GT(4 * tensor_bytes(part.operation), kMaxPart / 4)
        << one.name << ": no less than is needed";
    EXPECT_GE(part.scale, 4) << one.name;
    const OperationCall call = own_call(part.operation, {.gemm = plan::Gemm::kMkl})();
    call.begin();
    call.end();
    EXPECT_EQ(part_within(part.operation, kMaxPart).scale, 1) << one.name;
  }
  const OperationPart half = part_within(loss, tensor_bytes(loss) / 2);
  EXPECT_EQ(half.operation.samples, 6);
  EXPECT_EQ(half.scale, 2);
  EXPECT_EQ(part_within(attention, 1 << 20).operation.kv_heads,
            part_within(attention, 1 << 20).operation.inner / 8);
}

TEST(TimeOperations, OfARingAreThoseOfItsBlocks) {
  plan::Config config = small_job("nano");
  config.mesh.cp = 2;
  config.parallel.context = plan::ContextWay::kRing;
  EXPECT_THAT(times_of(config).operations, named(" in a ring of 2"));
}

TEST(TimeOperations, OfAModelOfLibtorchAreThoseOfOneForwardAndBackward) {
  const plan::OperationTimes times = times_of(small_job("resnet-tiny"));
  EXPECT_THAT(times.operations, named("aten::convolution_backward "));
  EXPECT_THAT(times.operations, named("batch_norm"));
  EXPECT_THAT(times.operations, named("aten::copy_ [16,16,3,3] [16,16,3,3]"))
      << "a gradient, into the buffer of all";
  for (const plan::TimedOperation& one : times.operations) EXPECT_GT(one.seconds, 0) << one.name;
}

/// The smallest of each family.
plan::Config tiny_job(const std::string& preset) {
  plan::Config config = small_job(preset);
  if (plan::data_kind(config) == plan::DataKind::kPairs) {
    config.model.layers = 4;
    config.model.width = 8;
    config.model.heads = 1;
    config.data.residues = 8;
    if (has_sequences(config.data.pairs)) config.data.sequences = 4;
  }
  return config;
}

/// Whether equal layers, the blocks of a model, take about as long.
void expect_alike(const std::vector<double>& layers, const std::string& preset) {
  const auto [least, most] = std::minmax_element(layers.begin() + 1, layers.end() - 2);
  EXPECT_LT(*most, 1.5 * *least) << preset;
}

// A stage is a range of layers, and a step without stages is all of them: one sum.
TEST(TimeOperations, OfStagesAddUpToThoseOfTheWholeModel) {
  for (const char* preset : {"nano", "resnet-tiny", "evoformer-tiny", "pairformer", "pairmixer"}) {
    const plan::Config config = tiny_job(preset);
    const Workload workload{open_dataset(config).or_throw()};
    const plan::Plan plan = timed_plan(config, workload);
    const plan::OperationTimes times = time_operations({plan, workload, 1});
    const double whole = times.seconds_of(1);
    const std::vector<double> layers = plan::layer_seconds(plan.model, times);
    for (const int stages : {1, 2, 4}) {
      double sum = 0;
      const auto all = plan::stage_times(plan.model, times, stages, 1).or_throw();
      for (const schedule::StageSeconds& one : all) {
        EXPECT_GT(one.forward, 0) << preset;
        EXPECT_GT(one.backward_input + one.backward_weight, 0) << preset;
        sum += one.whole();
      }
      EXPECT_NEAR(sum / whole, 1, 1e-9) << preset << " in " << stages << " stages";
    }
    EXPECT_EQ(layers.size(), plan.model.layers.size());
    const bool are_pairs = plan::data_kind(config) == plan::DataKind::kPairs;
    if (are_pairs) expect_alike(layers, preset);
  }
}

TEST(TimeOperations, OfAModelOfLibtorchKnowWhichLayersCallThem) {
  plan::Config config = small_job("resnet-tiny");
  config.compute.recompute = true;
  const Workload workload{open_dataset(config).or_throw()};
  const plan::Plan plan = timed_plan(config, workload);
  const plan::OperationTimes times = time_operations({plan, workload, 1});
  ASSERT_EQ(times.layers.size(), plan.model.layers.size());
  double forward = 0, backward = 0;
  for (const schedule::StageSeconds& one : times.layers) {
    EXPECT_GT(one.forward, 0);
    EXPECT_GT(one.backward_input, 0);
    forward += one.forward;
    backward += one.backward_input + one.backward_weight;
  }
  EXPECT_GT(backward, forward) << "which runs there again";
}

TEST(TimeOperations, OfPairsThatAreTooManyAreScaledFromThoseOfFewerResidues) {
  plan::PlanInputs inputs;
  plan::Config& config = inputs.config;
  config = small_job("pairmixer");
  config.model.layers = 3;
  config.model.width = 16;
  config.model.heads = 1;
  config.data.residues = 320;
  const Workload workload{open_pairs(config).or_throw()};
  inputs.data = workload.dataset.facts();
  inputs.machine.physical_cores = inputs.machine.usable_cores = 2;
  inputs.machine.memory_bytes = inputs.machine.available_bytes = int64_t{1} << 40;
  inputs.kernels.gemm = plan::Gemm::kMkl;
  inputs.kernels.attention = plan::Attention::kMath;
  inputs.model = count_pair_facts(config, workload.dataset.num_ids);
  const plan::Plan plan = plan::make_plan(inputs).or_throw();
  const plan::OperationTimes times = time_operations({plan, workload, 2});
  EXPECT_EQ(times.samples, 1);
  EXPECT_THAT(times.residues, testing::AnyOf(80, 40, 20));
  EXPECT_THAT(times.operations, named("aten::bmm [16,320,320] [16,320,320]"));
  for (const plan::TimedOperation& one : times.operations) EXPECT_GT(one.seconds, 0) << one.name;
  EXPECT_GT(times.update_seconds, 0);
  EXPECT_GT(times.sample_seconds, 0);
}

TEST(TimeOperations, TheProcessDrawsTheNumbersThatItWouldHaveDrawn) {
  const at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor state = generator.get_state();
  times_of(small_job("resnet-tiny"));
  EXPECT_TRUE(at::equal(generator.get_state(), state));
}

TEST(BusyRanks, OthersWorkWhileOneIsTimedAndNoLonger) {
  std::atomic<int> made = 0, runs = 0;
  time_with_busy_ranks(3, 0.01, 1, [&] {
    ++made;
    return [&](std::vector<double>&) { ++runs; };
  });
  EXPECT_EQ(made, 3);
  const int runs_at_the_end = runs;
  EXPECT_GT(runs_at_the_end, 3);
  EXPECT_EQ(runs, runs_at_the_end);
}

/// What a rank tells of each of its rounds, the first of which warms up and takes long.
std::vector<double> means_of(const std::function<std::pair<double, double>(int round)>& told) {
  int rounds = 0;
  return time_with_busy_ranks(1, 0.02, 2, [&]() -> Round {
    return [&](std::vector<double>& parts) {
      const auto [first, second] = told(rounds);
      parts[0] += first;
      parts[1] += second;
      std::this_thread::sleep_for(std::chrono::milliseconds(rounds == 0 ? 40 : 1));
      ++rounds;
    };
  });
}

TEST(BusyRanks, EachPartHasTheMeanOfTheRoundsBehindTheFirst) {
  const auto seconds = means_of([](int round) { return std::pair(round == 0 ? 1.0 : 2e-3, 3e-3); });
  EXPECT_NEAR(seconds[0], 2e-3, 1e-9);
  EXPECT_NEAR(seconds[1], 3e-3, 1e-9);
}

TEST(BusyRanks, ARoundThatAnotherProgramInterruptedIsNotCounted) {
  const auto seconds = means_of([](int round) { return std::pair(2e-3, round == 2 ? 1.0 : 3e-3); });
  EXPECT_NEAR(seconds[0], 2e-3, 1e-9);
  EXPECT_NEAR(seconds[1], 3e-3, 1e-9);
}

TEST(BusyRanks, OthersLeaveItsCpuToARankThatIsPinned) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "one CPU";
  CPU_ZERO(&one);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const std::thread::id rank = std::this_thread::get_id();
  std::atomic<int> beside = 0;
  time_with_busy_ranks(2, 0.01, 1, [&] {
    return [&](std::vector<double>&) {
      cpu_set_t mine;
      sched_getaffinity(0, sizeof mine, &mine);
      if (std::this_thread::get_id() != rank && CPU_ISSET(first, &mine)) ++beside;
    };
  });
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(beside, 0);
}

TEST(BusyRanks, WhatAnyRankThrowsIsThrown) {
  std::atomic<int> made = 0;
  const MakeRound make = [&]() -> Round {
    const int rank = made++;
    return [rank](std::vector<double>&) {
      if (rank == 1) throw std::runtime_error("of one");
    };
  };
  EXPECT_THROW(time_with_busy_ranks(2, 0.01, 1, make), std::runtime_error);
}

}  // namespace
}  // namespace hanji::train
