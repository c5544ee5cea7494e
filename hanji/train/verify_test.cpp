#include "hanji/train/verify.h"
#include "hanji/train/replicated_strategy.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/module.h>

#include <atomic>
#include <set>

#include "hanji/comm/all_reduce.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/test/run_ranks.h"
#include "hanji/train/test_verified.h"

namespace hanji::train {
namespace {

using report::FirstDifference;
using report::Quantity;
using testing::Contains;
using testing::ElementsAre;

constexpr int kSteps = 4;

plan::DataConfig bytes_of_the_embedded_text() {
  plan::DataConfig data;
  data.vocabulary = plan::VocabularyKind::kByte;
  return data;
}

/// Three ranks of 4, 2 and 1 of 7 samples, dropout, clipping, several buckets.
plan::Config small_job(plan::Bits bits) {
  plan::Config config;
  config.run.ranks = 3;
  config.model.layers = 1;
  config.model.heads = 2;
  config.model.width = 16;
  config.model.block = 8;
  config.model.dropout = 0.1;
  config.data = bytes_of_the_embedded_text();
  config.train.steps = kSteps;
  config.train.global_batch = 7;
  config.train.split = {4, 2, 1};
  config.train.bits = bits;
  config.train.clip = 0.5;
  config.train.evaluate_batches = 1;
  config.comm.bucket_bytes = 4096;
  return config;
}

plan::Plan planned(const plan::Config& config, const Dataset& dataset) {
  plan::PlanInputs inputs{.config = config, .data = dataset.facts()};
  inputs.machine.physical_cores = inputs.machine.usable_cores = 4;
  inputs.machine.core_cpus = {{0}, {1}, {2}, {3}};
  inputs.machine.memory_bytes = inputs.machine.available_bytes = int64_t{8} << 30;
  inputs.rates = {20e9, 60e9, 10e9, 1e-6, int64_t{32} << 20};
  inputs.kernels = {
      plan::Gemm::kMkl, plan::Attention::kMath, plan::Precision::kFloat32, 100e9, 40e9, 1e-7, 1e-7,
      "by hand"};
  return plan::make_plan(inputs).or_throw();
}

class VerifyTest : public testing::Test {
 protected:
  static const Dataset& dataset() {
    static const Dataset opened =
        open_dataset(bytes_of_the_embedded_text(), 8, plan::kAuto).or_throw();
    return opened;
  }

  report::Certificate verified(
      const plan::Plan& plan, const ObservedParts& parts = {},
      const std::function<void(layers::Model&)>& extend = [](layers::Model&) {}) {
    return train::verified(plan, {dataset()}, parts, extend);
  }

  /// The difference that a fault in `parts` must lead to.
  FirstDifference caught(
      const plan::Config& config, const ObservedParts& parts,
      const std::function<void(layers::Model&)>& extend = [](layers::Model&) {}) {
    const auto certificate = verified(planned(config, dataset()), parts, extend);
    EXPECT_FALSE(certificate.equal()) << "the fault went unseen";
    return certificate.difference.value_or(FirstDifference{});
  }
};

TEST_F(VerifyTest, StableRanksAreOneProcessWhateverThePlan) {
  std::set<std::string> states;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    plan::Config config = small_job(plan::Bits::kStable);
    config.run.ranks = ranks;
    config.train.split = {};
    config.comm.bucket_bytes = 1000 << (2 * ranks);
    const auto certificate = verified(planned(config, dataset()));
    EXPECT_TRUE(certificate.equal()) << report::describe(certificate);
    states.insert(certificate.expected.state_sha256);
  }
  const auto uneven = verified(planned(small_job(plan::Bits::kStable), dataset()));
  EXPECT_TRUE(uneven.equal()) << report::describe(uneven);
  states.insert(uneven.expected.state_sha256);
  EXPECT_EQ(states.size(), 1u);
}

TEST_F(VerifyTest, RunRanksAreOneProcessThatSumsAsTheyDo) {
  std::set<std::string> states;
  for (const int64_t micro_batch : {1, 2, 7}) {
    for (const int ranks : {1, 3}) {
      plan::Config config = small_job(plan::Bits::kRun);
      config.train.micro_batch = micro_batch;
      config.run.ranks = ranks;
      if (ranks == 1) config.train.split = {};
      const auto certificate = verified(planned(config, dataset()));
      EXPECT_TRUE(certificate.equal()) << report::describe(certificate);
      states.insert(certificate.expected.state_sha256);
    }
  }
  EXPECT_GT(states.size(), 2u) << "if the order did not show, equality would say little";
}

plan::Config cut_job(plan::Sharding data, plan::Bits bits, int ranks) {
  plan::Config config = small_job(bits);
  config.parallel.data = data;
  config.run.ranks = ranks;
  if (ranks != 3) config.train.split = {};
  config.train.micro_batch = bits == plan::Bits::kRun ? 1 : plan::kAuto;
  if (data == plan::Sharding::kHybrid) config.mesh = {.dp = ranks / 2, .fsdp = 2};
  return config;
}

TEST_F(VerifyTest, RanksThatCutTheStatesAreOneProcess) {
  using enum plan::Sharding;
  std::set<std::string> stable;
  for (const plan::Sharding data : {kServer, kZero1, kZero2, kZero3, kHybrid}) {
    for (const plan::Bits bits : {plan::Bits::kStable, plan::Bits::kRun}) {
      const int ranks = data == kHybrid ? 4 : 3;
      const auto certificate = verified(planned(cut_job(data, bits, ranks), dataset()));
      EXPECT_TRUE(certificate.equal()) << report::describe(certificate);
      if (bits == plan::Bits::kStable) stable.insert(certificate.expected.state_sha256);
    }
  }
  EXPECT_EQ(stable.size(), 1u);
}

TEST_F(VerifyTest, GroupsWhoseSumsAreInAnotherOrderAreRefused) {
  plan::Config config = cut_job(plan::Sharding::kHybrid, plan::Bits::kRun, 6);
  config.mesh = {.dp = 2, .fsdp = 3};
  EXPECT_THAT([&] { verified(planned(config, dataset())); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("mesh.fsdp = 3")));
}

TEST_F(VerifyTest, AShardThatOneRankDoesNotUpdateIsFound) {
  ObservedParts parts;
  parts.step = [](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    StepInputs at_rest = inputs;
    if (inputs.number == 1 && job.group.rank() == 1) at_rest.learning_rate = 0;
    return run_step(job, train, at_rest);
  };
  const FirstDifference found =
      caught(cut_job(plan::Sharding::kZero1, plan::Bits::kStable, 3), parts);
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.quantity, Quantity::kParameter);
  EXPECT_THAT(found.ranks, ElementsAre(0, 1, 2)) << "they share the memory";
  EXPECT_LT(found.num_tensors, found.of_tensors);
}

TEST_F(VerifyTest, FastIsRefused) {
  EXPECT_THAT([&] { verified(planned(small_job(plan::Bits::kFast), dataset())); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("promises no bits")));
}

parallel::Replicas& replicas_of(const Job& job) {
  return dynamic_cast<ReplicatedStrategy&>(*job.strategy).replicas();
}

/// Every gradient of this rank times `factor`, before any reducer sees it.
void scale_gradients(const Job& job, double factor) {
  for (const auto& parameter : replicas_of(job).parameters()) {
    parameter.tensor.register_hook([factor](const at::Tensor& g) { return g * factor; });
  }
}

ObservedParts mean_of_means() {
  ObservedParts parts;
  parts.assemble = [](const plan::Plan& plan, const comm::Group& group) {
    Job job = assemble(plan, group);
    const auto share = static_cast<double>(plan.shares[group.rank()].samples.size());
    const auto all = static_cast<double>(plan.config.train.global_batch);
    scale_gradients(job, all / share / plan.ranks);
    return job;
  };
  return parts;
}

TEST_F(VerifyTest, AMeanOfMeansIsFoundWhereSharesAreUneven) {
  const FirstDifference found = caught(small_job(plan::Bits::kStable), mean_of_means());
  EXPECT_EQ(found.step, 1);
  EXPECT_EQ(found.quantity, Quantity::kGradient);
  EXPECT_THAT(found.ranks, ElementsAre(0, 1, 2));
  EXPECT_TRUE(found.replicas_agree);
  EXPECT_EQ(found.num_tensors, found.of_tensors);
  EXPECT_EQ(found.backward, (FirstDifference::Backward{0, 0}));
  ASSERT_TRUE(found.distance.has_value());
  EXPECT_GT(found.distance->largest, 0);
  EXPECT_GT(found.distance->largest_ulps, 1);
  plan::Config even = small_job(plan::Bits::kStable);
  even.train.global_batch = 6;
  even.train.split = {};
  EXPECT_TRUE(verified(planned(even, dataset()), mean_of_means()).equal())
      << "where shares are even there is nothing wrong with it";
}

TEST_F(VerifyTest, AJobThatFailsWithoutAnAxisIsCertifiedSo) {
  ObservedParts parts = mean_of_means();
  parts.step = [](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    StepResult result = run_step(job, train, inputs);
    if (job.group.size() == 1) result.updated = false;
    return result;
  };
  const FirstDifference found = caught(small_job(plan::Bits::kStable), parts);
  EXPECT_EQ(found.step, 1);
  EXPECT_THAT(found.axes, testing::IsEmpty());
  EXPECT_THAT(found.unknown_axes,
              ElementsAre(testing::Pair("dp", testing::HasSubstr("are not both finite"))));
}

TEST_F(VerifyTest, DoubleScalingIsFoundInTheSum) {
  ObservedParts parts;
  parts.assemble = [](const plan::Plan& plan, const comm::Group& group) {
    parallel::DataParallelOptions twice = reduction(plan);
    twice.average = parallel::Average::kMean;  // and the step divides by the tokens
    return assemble(plan, group, twice);
  };
  for (const plan::Bits bits : {plan::Bits::kStable, plan::Bits::kRun}) {
    const FirstDifference found = caught(small_job(bits), parts);
    EXPECT_EQ(found.step, 1);
    EXPECT_EQ(found.quantity, Quantity::kGradient);
    EXPECT_THAT(found.ranks, ElementsAre(0, 1, 2));
    EXPECT_TRUE(found.replicas_agree);
    EXPECT_FALSE(found.backward.has_value()) << "each rank's own gradients are right";
  }
}

/// What goes wrong in hand_made_step(), in the step with number 1.
struct Fault {
  bool reduces_every_micro_batch = false;
  int loses_first_on_rank = -1;
  int skips_bucket = -1;
};

void reduce(Job& job, int skipped_bucket) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = replicas_of(job).flat_gradients();
  const auto& buckets = replicas_of(job).buckets().buckets;
  for (int i = 0; i < static_cast<int>(buckets.size()); ++i) {
    at::Tensor bucket = flat.slice(0, buckets[i].begin, buckets[i].end);
    if (i != skipped_bucket) comm::all_reduce(bucket, job.group).wait();
  }
}

/// run_step() of bits = run by hand, so that it can be broken: accumulates, then reduces.
StepResult hand_made_step(Job& job, const plan::TrainConfig& train, const StepInputs& inputs,
                          const Fault& fault) {
  const auto clear = [&] {
    for (const auto& parameter : replicas_of(job).parameters())
      parameter.tensor.mutable_grad().reset();
  };
  at::Tensor totals = at::zeros({2}, at::kDouble);
  clear();
  for (const layers::Batch& batch : inputs.micro_batches) {
    const auto by_hand = replicas_of(job).accumulate();
    layers::Batch counted = batch;
    counted.counters = {static_cast<uint64_t>(train.seed), inputs.number};
    const layers::LossSum loss = job.model->loss_sum(counted);
    loss.sum.backward();
    totals[0] += loss.sum.item<double>();
    totals[1] += static_cast<double>(loss.count);
    const bool first = &batch == &inputs.micro_batches.front();
    const bool last = &batch == &inputs.micro_batches.back();
    if (first && !last && fault.loses_first_on_rank == job.group.rank()) clear();
    if (first && fault.reduces_every_micro_batch) reduce(job, -1);
  }
  reduce(job, fault.skips_bucket);
  comm::all_reduce(totals, job.group).wait();
  const auto tokens = totals[1].item<double>();
  StepResult result{.loss = totals[0].item<double>() / tokens,
                    .num_targets = static_cast<int64_t>(tokens),
                    .updated = true};
  result.gradient_norm =
      parallel::grad_norm(replicas_of(job).flat_gradients(), replicas_of(job).buckets().flat) /
      tokens;
  inputs.before_update();
  job.strategy->update(inputs.learning_rate,
                       tokens * parallel::clip_divisor(result.gradient_norm, train.clip));
  return result;
}

ObservedParts by_hand(const Fault& fault) {
  ObservedParts parts;
  parts.step = [fault](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    return hand_made_step(job, train, inputs, inputs.number == 1 ? fault : Fault{});
  };
  return parts;
}

/// Every rank has at least two micro-batches.
plan::Config micro_batches_of_one() {
  plan::Config config = small_job(plan::Bits::kRun);
  config.train.split = {3, 2, 2};
  config.train.micro_batch = 1;
  return config;
}

TEST_F(VerifyTest, AStepMadeByHandIsEqualToo) {
  const auto certificate = verified(planned(micro_batches_of_one(), dataset()), by_hand({}));
  EXPECT_TRUE(certificate.equal()) << "or the faults below would prove nothing\n"
                                   << report::describe(certificate);
}

TEST_F(VerifyTest, AMicroBatchReducedTwiceIsFound) {
  const FirstDifference found =
      caught(micro_batches_of_one(), by_hand({.reduces_every_micro_batch = true}));
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.quantity, Quantity::kGradient);
  EXPECT_THAT(found.ranks, ElementsAre(0, 1, 2));
  EXPECT_TRUE(found.replicas_agree);
  EXPECT_FALSE(found.backward.has_value());
}

TEST_F(VerifyTest, AMicroBatchThatIsNotReducedIsFound) {
  const FirstDifference found = caught(micro_batches_of_one(), by_hand({.loses_first_on_rank = 1}));
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.quantity, Quantity::kGradient);
  EXPECT_FALSE(found.backward.has_value()) << "it was right, but did not arrive";
}

TEST_F(VerifyTest, ANoSyncGuardThatIsStillHeldIsFound) {
  ObservedParts parts;
  parts.step = [](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    if (inputs.number != 2) return run_step(job, train, inputs);
    const auto stale = replicas_of(job).accumulate();
    return run_step(job, train, inputs);
  };
  const FirstDifference found = caught(small_job(plan::Bits::kRun), parts);
  EXPECT_EQ(found.step, 3);
  EXPECT_EQ(found.quantity, Quantity::kGradient);
  EXPECT_THAT(found.ranks, ElementsAre(0, 1, 2));
  EXPECT_FALSE(found.replicas_agree);
  EXPECT_FALSE(found.backward.has_value());
}

TEST_F(VerifyTest, ASkippedBucketIsFoundByItsParameters) {
  plan::Config alone = micro_batches_of_one();
  alone.run.ranks = 1;
  alone.train.split = {};
  const plan::Plan plan = planned(alone, dataset());
  std::vector<std::string> bucket;
  test::run_ranks(1, [&](world::World& world) {
    const Job job = assemble(plan, world.group());
    const auto& buckets = replicas_of(job).buckets().buckets;
    EXPECT_EQ(std::ssize(buckets), plan.num_buckets);
    for (const int index : buckets.at(1).parameters) {
      bucket.push_back(replicas_of(job).parameters()[index].name);
    }
  });
  const FirstDifference found = caught(micro_batches_of_one(), by_hand({.skips_bucket = 1}));
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.quantity, Quantity::kGradient);
  EXPECT_THAT(bucket, Contains(found.tensor));
  EXPECT_EQ(found.num_tensors, std::ssize(bucket));
  EXPECT_LT(found.num_tensors, found.of_tensors);
  EXPECT_FALSE(found.replicas_agree);
  EXPECT_FALSE(found.backward.has_value());
}

TEST_F(VerifyTest, OneExtraRandomDrawIsFoundOnItsRank) {
  ObservedParts parts;
  parts.step = [](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    StepInputs ahead = inputs;
    if (inputs.number == 1 && job.group.rank() == 1) ++ahead.number;
    return run_step(job, train, ahead);
  };
  const FirstDifference found = caught(small_job(plan::Bits::kStable), parts);
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.quantity, Quantity::kGradient);
  EXPECT_EQ(found.backward, (FirstDifference::Backward{1, 4})) << "rank 1 owns grains 4 and 5";
  ASSERT_TRUE(found.distance.has_value());
  EXPECT_GT(found.distance->num_elements, 0);
}

TEST_F(VerifyTest, AMissedBufferIsFoundOnItsRank) {
  const auto add_buffer = [](layers::Model& model, double value) {
    model.register_buffer("running_mean", at::full({3}, value, at::kFloat));
  };
  ObservedParts parts;
  parts.assemble = [&](const plan::Plan& plan, const comm::Group& group) {
    Job job = assemble(plan, group);
    add_buffer(*job.model, group.rank() == 2 ? 1.5 : 1.0);  // nobody broadcasts it
    return job;
  };
  const FirstDifference found =
      caught(small_job(plan::Bits::kStable), parts, [&](auto& model) { add_buffer(model, 1.0); });
  EXPECT_EQ(found.step, 0);
  EXPECT_EQ(found.quantity, Quantity::kBuffer);
  EXPECT_EQ(found.tensor, "running_mean");
  EXPECT_THAT(found.ranks, ElementsAre(2));
  EXPECT_EQ(found.distance.value_or(report::Distance{}).largest, 0.5);
}

/// Flips the lowest bit of element 5 of the last parameter.
void flip_one_bit(Job& job) {
  const at::Tensor& parameter = replicas_of(job).parameters().back().tensor;
  auto* bytes = static_cast<std::byte*>(parameter.detach().mutable_data_ptr());
  bytes[5 * parameter.element_size()] ^= std::byte{1};
}

TEST_F(VerifyTest, OneFlippedBitIsFoundWithItsDistance) {
  ObservedParts parts;
  parts.step = [](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    const StepResult result = run_step(job, train, inputs);
    if (inputs.number == 2 && job.group.rank() == 2) flip_one_bit(job);
    return result;
  };
  const FirstDifference found = caught(small_job(plan::Bits::kStable), parts);
  EXPECT_EQ(found.step, 3);
  EXPECT_EQ(found.quantity, Quantity::kParameter);
  EXPECT_THAT(found.ranks, ElementsAre(2));
  EXPECT_FALSE(found.replicas_agree);
  EXPECT_EQ(found.num_tensors, 1);
  ASSERT_TRUE(found.distance.has_value());
  EXPECT_EQ(found.distance->largest_ulps, 1);
  EXPECT_EQ(found.distance->num_elements, 1);
  EXPECT_EQ(found.distance->first_element, 5);
}

TEST_F(VerifyTest, ALossThatOneRankTellsOtherwiseIsFound) {
  ObservedParts parts;
  parts.step = [](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    StepResult result = run_step(job, train, inputs);
    if (job.group.rank() == 1) result.loss += 0.25;
    return result;
  };
  const FirstDifference found = caught(small_job(plan::Bits::kRun), parts);
  EXPECT_EQ(found.step, 1);
  EXPECT_EQ(found.quantity, Quantity::kTotal);
  EXPECT_EQ(found.tensor, "loss");
  EXPECT_THAT(found.ranks, ElementsAre(1));
  EXPECT_NEAR(found.distance.value_or(report::Distance{}).largest, 0.25, 1e-12);
}

TEST_F(VerifyTest, ADifferenceThatDoesNotRepeatHasNoDistance) {
  std::atomic<int> num_flips = 0;
  ObservedParts parts;
  parts.step = [&](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    const StepResult result = run_step(job, train, inputs);
    if (inputs.number == 0 && job.group.rank() == 0 && num_flips++ == 0) flip_one_bit(job);
    return result;
  };
  const FirstDifference found = caught(small_job(plan::Bits::kStable), parts);
  EXPECT_EQ(found.step, 1);
  EXPECT_FALSE(found.distance.has_value());
}

}  // namespace
}  // namespace hanji::train
