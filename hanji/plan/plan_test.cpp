#include "hanji/plan/plan.h"
#include "hanji/plan/rank_memory.h"

#include <gmock/gmock.h>

#include <numeric>
#include <regex>

#include "hanji/base/json.h"
#include "hanji/layout/shard.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using test_plan::made;
using test_plan::two_cores;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

int64_t bytes_of(const Plan& plan, std::string_view category) {
  for (const MemoryLine& line : plan.memory) {
    if (line.category == category) return line.bytes;
  }
  return -1;
}

TEST(MakePlan, TheDefaultJobTakesEveryCore) {
  const Plan plan = made(two_cores());
  EXPECT_EQ(plan.ranks, 2);
  EXPECT_EQ(plan.threads, 1);
  EXPECT_THAT(plan.mesh.axes(), ElementsAre(layout::Axis{"dp", 2}));
  EXPECT_THAT(plan.shares, ElementsAre(DataShare{{0, 8}, 1}, DataShare{{8, 16}, 1}));
  EXPECT_THAT(plan.cpus, ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_EQ(plan.micro_batch, 8);
  EXPECT_EQ(plan.config.model.vocabulary, 65);
}

TEST(MakePlan, NothingInItsConfigIsAuto) {
  const Config c = made(two_cores()).config;
  EXPECT_EQ(c.run.ranks, 2);
  EXPECT_EQ(c.model.layers, 4);
  EXPECT_EQ(c.model.vocabulary, 65);
  EXPECT_EQ(c.train.micro_batch, 8);
  EXPECT_EQ(c.train.warmup_steps, 100);
  EXPECT_EQ(c.compute.gemm, Gemm::kOneDnn);
  EXPECT_EQ(c.compute.attention, Attention::kMath);
  EXPECT_EQ(c.compute.threads, 1);
}

TEST(MakePlan, TheDefaultJobEndsWithinTwoMinutesOnTwoCores) {
  const Plan plan = made(two_cores());
  EXPECT_LT(plan.predicted.step_seconds * static_cast<double>(plan.config.train.steps), 120);
}

TEST(MakePlan, FewerGrainsThanCoresLimitTheRanks) {
  PlanInputs inputs = two_cores();
  inputs.machine.usable_cores = 64;
  EXPECT_EQ(made(inputs).ranks, 16);
  inputs.config.train.global_batch = 12;
  inputs.config.train.grain = 4;
  const Plan plan = made(inputs);
  EXPECT_EQ(plan.ranks, 3);
  EXPECT_EQ(plan.threads, 64 / 3);
}

TEST(MakePlan, ThreadsOfARankSleepWhereTheyShareCpus) {
  using topology::WaitPolicy;
  PlanInputs inputs = two_cores();
  EXPECT_EQ(made(inputs).waits.policy, WaitPolicy::kRuntime);
  EXPECT_THAT(describe(made(inputs)), Not(HasSubstr("\nthreads "))) << "two ranks of one thread";
  inputs.config.run.ranks = 1;
  EXPECT_THAT(describe(made(inputs)), HasSubstr("\nthreads     spin before they sleep"));
  inputs.cpus_of_others = 1.9;
  EXPECT_EQ(made(inputs).waits.policy, WaitPolicy::kSleep);
  EXPECT_THAT(describe(made(inputs)), HasSubstr("\nthreads     sleep while they wait: other"));
  inputs.wait_setting = "OMP_WAIT_POLICY=active";
  EXPECT_EQ(made(inputs).waits.policy, WaitPolicy::kGiven);
  EXPECT_THAT(describe(made(inputs)), HasSubstr("OMP_WAIT_POLICY=active is set"));
  inputs = two_cores();
  inputs.config.compute.threads = 2;
  EXPECT_EQ(made(inputs).waits.policy, WaitPolicy::kSleep) << "two ranks of two on two CPUs";
  inputs.are_started = true;
  EXPECT_EQ(made(inputs).waits.policy, WaitPolicy::kGiven);
}

TEST(MakePlan, TheLimitOfRanksIsThatOfAHost) {
  PlanInputs inputs = two_cores();
  inputs.config.train.global_batch = 1024;
  inputs.config.run.ranks = 17;
  EXPECT_THAT(make_plan(inputs).status().message(),
              HasSubstr("host 0 has 17 of 17 ranks, but at most 16 run on one host; set run.ranks "
                        "= 16, or start them on 2 hosts"));
  inputs.ranks_per_host = {0, 17};
  EXPECT_THAT(make_plan(inputs).status().message(), HasSubstr("host 1 has 17 of 17 ranks"));
  inputs.config.run.ranks = 1024;
  inputs.machine.available_bytes *= 128;
  inputs.ranks_per_host = std::vector<int>(128, 8);
  for (const Bits bits : {Bits::kRun, Bits::kStable}) {
    inputs.config.train.bits = bits;
    const Plan plan = made(inputs);
    EXPECT_EQ(plan.shares.size(), 1024u);
    EXPECT_GT(plan.predicted.network_seconds, 0);
    EXPECT_THAT(std::regex_replace(describe(plan), std::regex("\\s+"), " "),
                AllOf(HasSubstr("128 hosts with 8 (128 times) ranks"),
                      HasSubstr("per rank 1 (1024 times),"), HasSubstr("bytes read within hosts"),
                      HasSubstr("by messages")));
    const auto read = plan_from_json(to_json(plan));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->hosts, plan.hosts);
  }
}

TEST(MakePlan, SplitGivesUnevenSharesOfWholeGrains) {
  PlanInputs inputs = two_cores();
  inputs.config.train.global_batch = 100;
  inputs.config.train.split = {.25, .25, .10, .40};
  inputs.config.train.micro_batch = 16;
  const Plan plan = made(inputs);
  EXPECT_EQ(plan.ranks, 4);
  std::vector<int64_t> sizes, passes;
  for (const DataShare& share : plan.shares) {
    sizes.push_back(share.samples.size());
    passes.push_back(share.num_micro_batches);
  }
  EXPECT_THAT(plan.cpus, Each(IsEmpty())) << "more ranks than cores are not pinned";
  EXPECT_THAT(sizes, ElementsAre(25, 25, 10, 40));
  EXPECT_THAT(passes, ElementsAre(2, 2, 1, 3));
}

TEST(MakePlan, AutomaticMicroBatchShrinksUntilItFits) {
  PlanInputs inputs = two_cores();
  inputs.config.model.preset = "baby";
  inputs.config.train.grain = 3;
  inputs.config.train.global_batch = 384;
  inputs.machine.available_bytes = int64_t{4} << 30;
  const Plan plan = made(inputs);
  EXPECT_LT(plan.micro_batch, 192);
  EXPECT_EQ(plan.micro_batch_wanted, 192);
  EXPECT_EQ(plan.micro_batch % 3, 0);
  EXPECT_LE(total_bytes(plan.memory) * 2, inputs.machine.available_bytes);
  EXPECT_EQ(plan.shares[0].num_micro_batches,
            (plan.shares[0].samples.size() + plan.micro_batch - 1) / plan.micro_batch);
}

TEST(MakePlan, WhatDoesNotFitIsRefusedWithItsTable) {
  PlanInputs inputs = two_cores();
  inputs.config.model.preset = "gpt2";
  inputs.machine.available_bytes = int64_t{1} << 30;
  const auto plan = make_plan(inputs);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kOutOfMemory);
  EXPECT_THAT(plan.status().message(), HasSubstr("optimizer"));
  EXPECT_THAT(plan.status().message(), HasSubstr("fewer ranks"));
}

TEST(MakePlan, AVocabularyBelowTheDatasIsRefused) {
  PlanInputs inputs = two_cores();
  inputs.config.model.vocabulary = 64;
  inputs.data.num_train_samples = 0;
  const auto plan = make_plan(inputs);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(), HasSubstr("model.vocabulary is 64, but the data has 65"));
  EXPECT_THAT(plan.status().message(), HasSubstr("no training sample of 65 tokens"));
}

TEST(MakePlan, KernelsThatTheConfigDidNotAskForAreRefused) {
  PlanInputs inputs = two_cores();
  inputs.config.compute.gemm = Gemm::kMkl;
  EXPECT_THAT(make_plan(inputs).status().message(), HasSubstr("measured kernels are gemm onednn"));
}

TEST(MakePlan, ProductsOfALesserToleranceThanAskedAreRefused) {
  PlanInputs inputs = two_cores();
  inputs.kernels.products = Products::kMedium;
  EXPECT_THAT(
      make_plan(inputs).status().message(),
      HasSubstr("the measured products are medium, but the configuration asks for highest"));
  inputs.config.compute.products = Products::kMedium;
  EXPECT_EQ(made(inputs).kernels.products, Products::kMedium);
  inputs.kernels.products = Products::kHighest;
  EXPECT_EQ(made(inputs).kernels.products, Products::kHighest) << "changes nothing here";
}

TEST(Describe, SaysThatMessagesWithinAHostAreNotPriced) {
  PlanInputs inputs = two_cores();
  const auto words = [&] {
    return std::regex_replace(describe(made(inputs)), std::regex("\\s+"), " ");
  };
  EXPECT_THAT(words(), Not(HasSubstr("not timed")));
  inputs.config.comm.engine = Engine::kGloo;
  EXPECT_THAT(words(), HasSubstr("engine gloo"));
  EXPECT_THAT(words(), HasSubstr("transfer is priced as that of shm, which is faster"));
}

TEST(Describe, SaysWhatMediumProductsAre) {
  PlanInputs inputs = two_cores();
  EXPECT_THAT(describe(made(inputs)), Not(HasSubstr("products:")));
  inputs.config.compute.products = Products::kMedium;
  inputs.kernels.products_why = "medium changes nothing here: gemm.onednn 100 GF/s";
  EXPECT_THAT(describe(made(inputs)),
              HasSubstr("; float32\n            products: medium changes nothing here: "));
}

TEST(MakePlan, ADtypeWhoseProductsAreSlowerThanFloat32sIsRefusedUnlessOneInsists) {
  PlanInputs inputs = two_cores();
  inputs.config.compute.dtype = inputs.kernels.precision = Precision::kBFloat16;
  inputs.kernels.gemm_flops_per_second = 4.25e9;
  inputs.kernels.float32_flops_per_second = 70e9;
  const Status refused = make_plan(inputs).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  for (const char* words : {"bf16 multiplies at 4.25 GF/s", "float32 at 70 GF/s",
                            "compute.dtype = \"float32\"", "compute.slow_dtype = true"}) {
    EXPECT_THAT(refused.message(), HasSubstr(words));
  }
  inputs.config.compute.slow_dtype = true;
  EXPECT_EQ(made(inputs).kernels.precision, Precision::kBFloat16);
  inputs.config.compute.slow_dtype = false;
  inputs.kernels.gemm_flops_per_second = 70e9;
  EXPECT_EQ(made(inputs).kernels.precision, Precision::kBFloat16);
}

TEST(MakePlan, TheJobsHashForgetsThePlanAndRemembersTheJob) {
  const std::string hash = made(two_cores()).job_hash;
  EXPECT_EQ(hash.size(), 64u);
  PlanInputs other = two_cores();
  other.config.run.ranks = 1;
  other.config.run.out = "elsewhere";
  other.config.train.micro_batch = 2;
  other.kernels.gemm = Gemm::kMkl;
  other.config.comm.bucket_bytes = 1 << 20;
  other.config.train.profile = "steps 3-4";
  EXPECT_EQ(made(other).job_hash, hash);
  other.config.train.seed = 2;
  EXPECT_NE(made(other).job_hash, hash);
  PlanInputs rounded = two_cores();
  rounded.config.compute.products = Products::kMedium;
  EXPECT_NE(made(rounded).job_hash, hash);
  PlanInputs longer = two_cores();
  longer.data.num_train_samples = 10001;
  EXPECT_NE(made(longer).job_hash, hash);
}

TEST(Memory, NanoByHand) {
  const ModelSpec nano{2, 2, 32, 32, 65, true, 0};
  // N = 96 tokens; N*C = 3072. Per layer 2+2+3+1+4+4 = 16 of them, 2 besides; 2 layers.
  const int64_t wide = 34 * 3072, log_sums = 2 * 96 * 2, statistics = 2 * 5 * 96, logits = 96 * 65;
  EXPECT_EQ(test_plan::activation_bytes(nano, {3, Precision::kFloat32}),
            4 * (wide + log_sums + statistics + logits));
  EXPECT_EQ(test_plan::activation_bytes(nano, {3, Precision::kFloat64}),
            8 * (wide + log_sums + statistics + logits));
  // bf16 keeps the stream (5 sums), log sums and statistics in fp32, and casts of 12 C*C weights a
  // layer and V*C of the head.
  const int64_t casts = 2 * 12 * 32 * 32 + 65 * 32;
  EXPECT_EQ(test_plan::activation_bytes(nano, {3, Precision::kBFloat16}),
            2 * (29 * 3072 + logits + casts) + 4 * (5 * 3072 + log_sums + statistics));
}

TEST(Memory, DropoutKeepsMasksAndSquares) {
  ModelSpec model{2, 2, 32, 32, 65, true, 0};
  const int64_t without = test_plan::activation_bytes(model, {3, Precision::kFloat32});
  model.dropout = 0.1;
  const int64_t masks = 5 * 3072, squares = 2 * 3 * (3 * 2 * 32 * 32), log_sums = 2 * 96 * 2;
  EXPECT_EQ(test_plan::activation_bytes(model, {3, Precision::kFloat32}) - without,
            4 * (masks + squares - log_sums));
}

TEST(Memory, RecomputedBlocksKeepTheirInputs) {
  const ModelSpec nano{2, 2, 32, 32, 65, true, 0};
  const ActivationOptions all{.micro_batch = 3};
  ActivationOptions inputs = all;
  inputs.recompute = true;
  // Two streams and one branch; sum and output of the last norm, its statistics, and the logits.
  EXPECT_EQ(test_plan::activation_bytes(nano, inputs), 4 * (5 * 3072 + 2 * 96 + 96 * 65));
  const int64_t peak =
      test_plan::activation_bytes(nano, inputs) + test_plan::workspace_bytes(nano, inputs);
  EXPECT_LT(peak, test_plan::activation_bytes(nano, all) + test_plan::workspace_bytes(nano, all));
}

TEST(Memory, ParametersGradientsAndMomentsShareOneFlatLayout) {
  const Plan plan = made(two_cores());
  const int64_t flat = bytes_of(plan, "parameters");
  EXPECT_GE(flat, 4 * plan.model.num_parameters());
  EXPECT_LT(flat, 4 * (plan.model.num_parameters() + 64 * 53));
  EXPECT_EQ(flat % 256, 0);
  EXPECT_EQ(bytes_of(plan, "gradients"), flat);
  EXPECT_EQ(bytes_of(plan, "optimizer"), 2 * flat);
  EXPECT_EQ(bytes_of(plan, "checkpoint copy"), 3 * flat);
  EXPECT_EQ(bytes_of(plan, "data"), 2 * 8 * 64 * 8);
  EXPECT_EQ(plan.predicted.peak_bytes_per_rank, total_bytes(plan.memory));
}

TEST(MakePlan, StableTakesOneGrainAtATimeAndOneThread) {
  PlanInputs inputs = two_cores();
  inputs.config.train.bits = Bits::kStable;
  inputs.config.train.global_batch = 18;
  inputs.config.train.grain = 2;
  inputs.config.train.micro_batch = 6;
  inputs.config.run.ranks = 1;
  const Plan one = made(inputs);
  EXPECT_EQ(one.threads, 1);
  EXPECT_EQ(one.micro_batch, 2);
  EXPECT_EQ(one.shares[0].num_micro_batches, 9);
  inputs.config.train.micro_batch = kAuto;
  inputs.config.run.ranks = 2;
  const Plan two = made(inputs);
  EXPECT_EQ(two.micro_batch, 2);
  EXPECT_EQ(one.job_hash, two.job_hash);
  inputs.config.compute.threads = 2;
  EXPECT_NE(made(inputs).job_hash, two.job_hash) << "threads belong to the job";
  const std::string words = std::regex_replace(describe(two), std::regex("\\s+"), " ");
  EXPECT_NE(words.find("9 grains of 2"), std::string::npos) << "wherever the line breaks";
}

TEST(MakePlan, StableCountsTheBuffersOfTheLargestFold) {
  PlanInputs inputs = two_cores();
  const int64_t flat = bytes_of(made(inputs), "gradients");
  inputs.config.train.bits = Bits::kStable;
  inputs.config.run.ranks = 2;
  inputs.config.train.global_batch = 7;
  const Plan plan = made(inputs);
  // Rank 0 owns grains 0 to 3: while 3 waits, ((0 1) 2) holds two, three with its own buffer.
  EXPECT_EQ(num_gradient_buffers(plan), 3);
  // The head's use of the token embedding has buffers of its own.
  const int64_t use = layout::round_up(plan.model.parameters[0].elements, layout::kAlignment) * 4;
  EXPECT_EQ(bytes_of(plan, "gradients"), 3 * (flat + use));
}

TEST(Predict, StableSendsAPartialBufferPerMaximalSubtree) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 2;
  inputs.config.model.tied = false;
  const int64_t flat = bytes_of(made(inputs), "parameters");
  const auto wire = [&](int64_t global_batch) {
    inputs.config.train.global_batch = global_batch;
    return made(inputs).predicted.wire_bytes_per_step;
  };
  inputs.config.train.bits = Bits::kStable;
  // 16 grains: one subtree per rank, as an all_reduce. 12: rank 0 owns [0,4) and [4,6), rank 1
  // [6,8) and [8,12): each reads two halves of the other and writes one.
  EXPECT_GE(wire(16), 2 * flat);
  EXPECT_LT(wire(16), 2 * flat + 1024);
  EXPECT_GE(wire(12), 3 * flat);
  EXPECT_LT(wire(12), 3 * flat + 1024);
}

TEST(Predict, OneRankSendsNothing) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 1;
  const Plan plan = made(inputs);
  EXPECT_EQ(plan.predicted.transfer_seconds, 0);
  EXPECT_EQ(plan.predicted.wire_bytes_per_step, 0);
}

TEST(Predict, TwoRanksReadHalfOfEachOthersGradientsAndWriteHalf) {
  const Plan plan = made(two_cores());
  const int64_t flat = bytes_of(plan, "gradients");
  // Each of 2 ranks reads N/2 of the other and writes N/2 to it: 2N, and the small all_reduce.
  EXPECT_GE(plan.predicted.wire_bytes_per_step, 2 * flat);
  EXPECT_LT(plan.predicted.wire_bytes_per_step, 2 * flat + 1024);
}

TEST(Predict, EveryInputMovesTheStepTheRightWay) {
  const double base = made(two_cores()).predicted.step_seconds;
  const auto seconds_after = [](auto change) {
    PlanInputs inputs = two_cores();
    change(inputs);
    return made(inputs).predicted.step_seconds;
  };
  EXPECT_GT(seconds_after([](PlanInputs& i) { i.config.train.global_batch = 32; }), base);
  EXPECT_GT(seconds_after([](PlanInputs& i) { i.config.run.ranks = 1; }), base);
  EXPECT_GT(seconds_after([](PlanInputs& i) { i.config.compute.recompute = true; }), base);
  EXPECT_GT(seconds_after([](PlanInputs& i) { i.config.train.micro_batch = 1; }), base);
  EXPECT_GT(seconds_after([](PlanInputs& i) { i.config.model.layers = 5; }), base);
  EXPECT_GT(seconds_after([](PlanInputs& i) { i.config.train.split = {3, 1}; }), base);
  EXPECT_GT(seconds_after([](PlanInputs& i) { i.rates.sync_seconds = 1e-2; }), base);
  EXPECT_LT(seconds_after([](PlanInputs& i) {
              i.rates.memory_bytes_per_second *= 4;
              i.rates.cached_bytes_per_second *= 4;
            }),
            base);
}

TEST(Predict, PartsAddUpToTheStep) {
  const Prediction p = made(two_cores()).predicted;
  EXPECT_DOUBLE_EQ(p.step_seconds, p.compute_seconds + p.exposed_transfer_seconds + p.data_seconds);
  EXPECT_DOUBLE_EQ(p.transfer_seconds, p.exposed_transfer_seconds + p.hidden_transfer_seconds);
  EXPECT_EQ(p.hidden_transfer_seconds, 0) << "a rank moves its bytes with its own core";
  EXPECT_DOUBLE_EQ(p.tokens_per_second * p.step_seconds, 16 * 64);
}

PlanInputs on_four_ranks(Sharding data) {
  PlanInputs inputs = two_cores();
  inputs.config.run.ranks = 4;
  inputs.config.parallel.data = data;
  return inputs;
}

TEST(MakePlan, CutStatesAddUpToOneStatePerGroup) {
  const int64_t flat = bytes_of(made(on_four_ranks(Sharding::kReplicas)), "parameters");
  const Plan zero1 = made(on_four_ranks(Sharding::kZero1));
  EXPECT_EQ(bytes_of(zero1, "parameters"), flat);
  EXPECT_EQ(bytes_of(zero1, "optimizer"), 2 * flat);
  EXPECT_EQ(bytes_of(zero1, "gradients"), flat);
  EXPECT_THAT(zero1.mesh.axes(), ElementsAre(layout::Axis{"dp", 1}, layout::Axis{"fsdp", 4}));
  int64_t shards = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto lines = rank_memory(zero1, zero1.micro_batch, rank);
    shards += lines[2].bytes;
    EXPECT_EQ(lines[0].bytes, rank == 0 ? flat : 0) << "parameters lie once";
  }
  EXPECT_EQ(shards, flat);
  EXPECT_GT(zero1.predicted.peak_bytes_per_rank, 0);
}

TEST(MakePlan, Zero2HoldsTwoUnitsOfGradientsUnlessPassesAccumulate) {
  PlanInputs inputs = on_four_ranks(Sharding::kZero2);
  inputs.config.comm.bucket_bytes = 256 << 10;
  const Plan once = made(inputs);
  const ShardPlan shards = *shards_of(once);
  ASSERT_GT(shards.units.size(), 2u);
  int64_t largest = 0;
  for (const auto& unit : shards.units) largest = std::max(largest, 4 * unit.flat.count);
  EXPECT_EQ(bytes_of(once, "gradients"), 2 * largest);
  inputs.config.train.micro_batch = 1;
  EXPECT_EQ(bytes_of(made(inputs), "gradients"), std::ssize(shards.units) * largest);
}

TEST(MakePlan, HybridGroupsFollowTheMesh) {
  PlanInputs inputs = on_four_ranks(Sharding::kHybrid);
  EXPECT_THAT(made(inputs).mesh.axes(),
              ElementsAre(layout::Axis{"dp", 1}, layout::Axis{"fsdp", 4}));
  inputs.config.mesh.fsdp = 2;
  const Plan plan = made(inputs);
  EXPECT_THAT(plan.mesh.axes(), ElementsAre(layout::Axis{"dp", 2}, layout::Axis{"fsdp", 2}));
  EXPECT_GT(plan.predicted.wire_bytes_per_step, 0);
}

int64_t bytes_of(const std::vector<MemoryLine>& lines, std::string_view category) {
  const auto found = std::ranges::find(lines, category, &MemoryLine::category);
  return found == lines.end() ? -1 : found->bytes;
}

TEST(HostMemory, IsTheSumOverItsRanksAndOfWhatLiesOnceOnce) {
  const Plan replicas = made(on_four_ranks(Sharding::kReplicas));
  const int64_t flat = bytes_of(replicas, "parameters");
  const auto whole = host_memory(replicas);
  EXPECT_EQ(bytes_of(whole, "parameters"), 4 * flat);
  EXPECT_EQ(bytes_of(whole, "optimizer"), 8 * flat);
  EXPECT_EQ(bytes_of(whole, "checkpoint copy"), 3 * flat) << "only one rank saves";
  const auto cut = host_memory(made(on_four_ranks(Sharding::kZero1)));
  EXPECT_EQ(bytes_of(cut, "parameters"), flat);
  EXPECT_EQ(bytes_of(cut, "optimizer"), 2 * flat);
  EXPECT_EQ(bytes_of(cut, "checkpoint copy"), 3 * flat) << "each rank saves its part";
  EXPECT_LT(bytes_of(made(on_four_ranks(Sharding::kZero1)).memory, "checkpoint copy"), flat);
  PlanInputs inputs = on_four_ranks(Sharding::kReplicas);
  inputs.ranks_per_host = {1, 3};
  const Plan apart = made(inputs);
  EXPECT_EQ(bytes_of(host_memory(apart), "parameters"), 3 * flat) << "of the host that needs most";
  EXPECT_THAT(describe(apart), HasSubstr("  a host    "));
}

TEST(HostMemory, MomentsInAFileLeaveWindows) {
  PlanInputs inputs = on_four_ranks(Sharding::kReplicas);
  inputs.config.offload = {.optimizer = Place::kFile, .folder = "/scratch"};
  inputs.config.model.preset = "baby";
  const Plan plan = made(inputs);
  // Of 10.8 M parameters three pieces of 2^18, of two moments.
  EXPECT_EQ(bytes_of(plan.memory, "optimizer"), 3 * 2 * (4 << 18));
  EXPECT_EQ(bytes_of(host_memory(plan), "optimizer"), 4 * 3 * 2 * (4 << 18));
  EXPECT_THAT(std::regex_replace(describe(plan), std::regex("\\s+"), " "),
              HasSubstr("in a file in /scratch; 6.29 MB of windows in memory; the times below"));
}

TEST(HostMemory, CountsEachRanksOwnSamples) {
  PlanInputs inputs = two_cores();
  inputs.config.train.split = {0.75, 0.25};
  const Plan plan = made(inputs);
  const int64_t batch = plan.config.train.global_batch;
  EXPECT_EQ(bytes_of(host_memory(plan), "data"), 2 * batch * plan.config.model.block * 8);
  EXPECT_EQ(bytes_of(plan, "data"), 2 * batch * 3 / 4 * plan.config.model.block * 8);
}

TEST(Predict, AServersMessagesAreItsTraffic) {
  const Plan plan = made(on_four_ranks(Sharding::kServer));
  const int64_t flat = bytes_of(plan, "parameters");
  EXPECT_GE(plan.predicted.wire_bytes_per_step, 2 * 3 * flat);
  EXPECT_LT(plan.predicted.wire_bytes_per_step, 2 * 3 * flat + 65536);
  EXPECT_EQ(plan.predicted.collectives_per_step, 2) << "the norm and the totals";
}

TEST(MakePlan, AServersWorkerKeepsGradientsThatHaveNoSlotsUntilItPushesThem) {
  Plan plan = made(on_four_ranks(Sharding::kServer));
  const auto workspace = [&](int64_t micro_batch) {
    for (const MemoryLine& line : rank_memory(plan, micro_batch, 0)) {
      if (line.category == "workspace") return line.bytes;
    }
    return int64_t{-1};
  };
  const int64_t largest = 4 * std::ranges::max(plan.model.parameter_sizes());
  EXPECT_EQ(workspace(1), workspace_bytes(plan.model, 1) + largest)
      << "a gradient beside the sum to which it is added";
  plan.model.has_gradient_slots = false;
  const int64_t all = plan.shares[0].samples.size(), gradients = 4 * plan.model.num_parameters();
  ASSERT_GT(all, 1);
  EXPECT_EQ(workspace(all), std::max(workspace_bytes(plan.model, all), gradients));
  EXPECT_EQ(workspace(1), workspace_bytes(plan.model, 1) + gradients)
      << "of the micro-batch before";
}

TEST(Describe, FitsATerminalInPlainAscii) {
  PlanInputs inputs = two_cores();
  inputs.config.data.text = "/a/very/long/\x1b[31m/path/" + std::string(200, 'x') + "\n/\xff.txt";
  inputs.config.train.global_batch = 64;
  inputs.config.run.ranks = 16;
  const std::string text = describe(made(inputs));
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 80u) << text.substr(begin, end - begin);
  }
  for (char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << int(c);
}

TEST(Describe, SaysThatUnshardingIsFreeWhereRanksShareOneCopyOfTheParameters) {
  const auto text = [](Sharding data) {
    std::string flat = describe(made(on_four_ranks(data)));
    return std::regex_replace(flat, std::regex("\\s+"), " ");
  };
  EXPECT_THAT(text(Sharding::kZero1), HasSubstr("zero1: the optimizer is sharded over 4 ranks"));
  EXPECT_THAT(text(Sharding::kZero3),
              HasSubstr("zero3: parameters, gradients and optimizer are sharded over 4 ranks"));
  EXPECT_THAT(text(Sharding::kZero3),
              HasSubstr("of a layer each; all ranks share one copy of parameters and moments in "
                        "shared memory, so unsharding a layer moves no bytes"));
  EXPECT_THAT(text(Sharding::kZero2), Not(HasSubstr("moves no bytes")));
}

TEST(MakePlan, AHybridOfOneGroupCallsWhatZero3Does) {
  EXPECT_EQ(made(on_four_ranks(Sharding::kHybrid)).predicted.collectives_per_step,
            made(on_four_ranks(Sharding::kZero3)).predicted.collectives_per_step);
}

TEST(MakePlan, TheUnitsOfZero3AreTheLayers) {
  const Plan plan = made(on_four_ranks(Sharding::kZero3));
  const ShardPlan shards = *shards_of(plan);
  ASSERT_EQ(shards.units.size(), plan.model.layers.size());
  for (size_t layer = 0; layer < shards.units.size(); ++layer) {
    for (const int parameter : shards.units[layer].parameters) {
      EXPECT_EQ(plan.model.parameters[parameter].layer, static_cast<int64_t>(layer));
    }
  }
}

TEST(Describe, Golden) {
  Plan plan = made(two_cores());
  plan.job_hash = "0123456789abcdef0123456789abcdef";
  plan.predicted = {0.0505,           0.05, 0.0005, 0.0005, 0, 0.00002, 20480, int64_t{30} << 20,
                    int64_t{6} << 20, 0,    0,      4};
  EXPECT_EQ(describe(plan), R"(plan of job 0123456789abcdef
model       char: 4 layers, 4 heads, 128 wide, block 64, vocabulary 65, tied
            head; 810 k parameters, 5.16 MF per token
data        the embedded text: 10.0 k training and 1.00 k validation samples of
            64 tokens
mesh        dp 2, 2 ranks of 1 thread on cpus 0 1
batch       16 samples = 1024 tokens a step; per rank 8 8, at most 8 at once;
            1000 steps
kernels     float32, gemm onednn 100 GF/s, attention math 40 GF/s
sums        bits run, engine shm, 2 buckets of at most 26.2 MB
memory, of those that need most                 a rank          a host
  parameters                                   3.24 MB         6.48 MB
  gradients                                    3.24 MB         6.48 MB
  optimizer                                    6.48 MB         13.0 MB
  activations                                  17.5 MB         35.0 MB
  workspace                                     653 kB         1.31 MB
  checkpoint copy                              9.72 MB         9.72 MB
  data                                         8.19 kB         16.4 kB
  total                                        40.8 MB         72.0 MB
  a rank    PPPGGOOOOOAAAAAAAAAAAAAACCCCCCCC                            40.8 MB
  a host    PPPPPGGGGGOOOOOOOOOOAAAAAAAAAAAAAAAAAAAAAAAAAAAWCCCCCCCC    72.0 MB
            P parameters  G gradients  O optimizer  A activations  W workspace
            C checkpoint copy  D data
predicted for one step
  compute                                      50.0 ms
  transfer                                      500 us
    of it exposed                               500 us
    of it hidden                                   0 s
  data                                         20.0 us
  step                                         50.5 ms
  collectives of a rank                              4
  bytes on the wire, all ranks                 6.29 MB
  tokens per second                             20.5 k
  all steps                                     50.5 s
)");
}

}  // namespace
}  // namespace hanji::plan
