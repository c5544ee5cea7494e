// What is counted without memory is what a model of pairs allocates and moves.
#include <gmock/gmock.h>

#include "hanji/plan/pair_capacity.h"
#include "hanji/train/count_facts.h"

namespace hanji::train {
namespace {

using plan::TriangleWay;

plan::Config pairs_of(int64_t ranks, TriangleWay way, bool recompute) {
  plan::Config config;
  config.model = {.preset = "evoformer-tiny", .layers = 4, .heads = 2, .width = 32};
  config.data.pairs = plan::Pairs::kContacts;
  config.data.residues = 40;
  config.data.sequences = 24;
  config.data.systems = 60;
  config.mesh.axial = ranks;
  if (ranks > 1) config.parallel.triangle = way;
  config.compute.recompute = recompute;
  return config;
}

double share(int64_t found, int64_t expected) {
  return static_cast<double>(found) / static_cast<double>(expected);
}

/// Three per cent, as a plan promises: of what kernels allocate for themselves nothing is seen.
constexpr double kTolerance = 0.03;

void expect_counted_as_it_runs(const plan::Config& config, const std::string& which) {
  const Dataset dataset = open_dataset(config).or_throw();
  const plan::ModelFacts real = count_facts(config, Workload{dataset});
  const plan::ModelFacts found = count_pair_facts(config, dataset.num_ids);
  const auto memory = [](const plan::ModelFacts& facts) {
    return plan::activation_bytes(facts, 2) + plan::workspace_bytes(facts, 2);
  };
  EXPECT_NEAR(share(plan::activation_bytes(found, 2), plan::activation_bytes(real, 2)), 1,
              kTolerance)
      << which;
  EXPECT_NEAR(share(memory(found), memory(real)), 1, kTolerance) << which;
  EXPECT_EQ(found.parameters, real.parameters) << which;
  EXPECT_EQ(found.targets_per_sample, real.targets_per_sample) << which;
  EXPECT_EQ(found.sample_bytes, real.sample_bytes) << which;
  EXPECT_NEAR(found.product_flops_per_sample() / real.product_flops_per_sample(), 1, 1e-9);
  EXPECT_EQ(plan::kernel_shapes(found).width, plan::kernel_shapes(real).width) << which;
  ASSERT_EQ(found.layers.size(), real.layers.size());
  for (size_t i = 0; i < real.layers.size(); ++i) {
    EXPECT_EQ(found.layers[i].name, real.layers[i].name) << which;
    EXPECT_EQ(found.layers[i].calls, real.layers[i].calls) << which << " layer " << i;
  }
}

TEST(PairCapacity, CountedWithoutMemoryIsWhatTheModelTakes) {
  expect_counted_as_it_runs(pairs_of(1, TriangleWay::kChannels, true), "1 recomputed");
  expect_counted_as_it_runs(pairs_of(2, TriangleWay::kGather, false), "2 gather");
  expect_counted_as_it_runs(pairs_of(3, TriangleWay::kChannels, false), "3");
  expect_counted_as_it_runs(pairs_of(3, TriangleWay::kGather, true), "3 gather, recomputed");
}

TEST(PairCapacity, InBlocksOfRowsInChunksAndInBFloat16Too) {
  plan::Config config = pairs_of(2, TriangleWay::kChannels, false);
  config.compute.dtype = plan::Precision::kBFloat16;
  expect_counted_as_it_runs(config, "bf16");
  config = pairs_of(1, TriangleWay::kChannels, false);
  const int64_t whole = plan::activation_bytes(count_pair_facts(config, 2), 2);
  config.model.chunk_bytes = int64_t{100} << 10;
  expect_counted_as_it_runs(config, "chunks");
  EXPECT_LT(plan::activation_bytes(count_pair_facts(config, 2), 2), 0.85 * whole);
  config = pairs_of(2, TriangleWay::kChannels, false);
  config.train.bits = plan::Bits::kStable;
  config.train.cuts.tokens = 3;
  config.model.dropout = 0.25;
  expect_counted_as_it_runs(config, "blocks");
}

/// 1024 residues are some 40 GB of activations in three blocks, which no test has.
TEST(PairCapacity, DividesByTheRanksWhereChannelsMoveAndSaysFromWhereOnItFits) {
  plan::Config config = pairs_of(1, TriangleWay::kAuto, true);
  config.data.residues = 1024;
  config.data.sequences = 256;
  plan::PairCapacity capacity{.config = config, .device = {}, .micro_batch = 1};
  capacity.device.name = "small";
  capacity.device.memory_bytes = 1;
  for (const int ranks : {1, 8}) {
    const auto count = [&](TriangleWay way) {
      config.mesh.axial = ranks;
      config.parallel.triangle = way;
      return count_pair_facts(config, 2);
    };
    capacity.rows.push_back({ranks, count(TriangleWay::kChannels), count(TriangleWay::kGather)});
  }
  const auto needs = [&](size_t row, TriangleWay way) {
    return plan::needs_of(capacity, capacity.rows[row], way);
  };
  const plan::PairNeeds one = needs(0, TriangleWay::kChannels),
                        eight = needs(1, TriangleWay::kChannels);
  const int64_t pair = int64_t{1024} * 1024 * 32 * 4;
  EXPECT_LT(eight.memory(), one.memory() / 5) << "biases and states are whole on every rank";
  EXPECT_GT(needs(1, TriangleWay::kGather).memory(), eight.memory() + pair / 2);
  EXPECT_EQ(one.sent_bytes, 0);
  EXPECT_GT(eight.sent_bytes, 8 * 3 * pair / 64) << "of eight moves in each of three blocks";
  EXPECT_THAT(plan::describe(capacity), testing::HasSubstr("fits on none of up to 8 ranks"));
  capacity.device.memory_bytes = eight.memory();
  EXPECT_THAT(
      plan::describe(capacity),
      testing::HasSubstr("fits on 8 or more ranks; if triangles gather, on none of up to 8"));
}

}  // namespace
}  // namespace hanji::train
