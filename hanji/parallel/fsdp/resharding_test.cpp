// Units that are resharded over a few ranks after forward.
#include <gmock/gmock.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "hanji/comm/gloo/group.h"
#include "hanji/comm/heap.h"
#include "hanji/parallel/fsdp/description.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/sequential.h"
#include "hanji/parallel/fsdp/test_unit_net.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::parallel {
namespace {

namespace resharding {

using test::run_ranks;
using test_net::refusal;
using test_net::same_bits;
using test_net::Values;
using testing::HasSubstr;
using unit_net::BlockImpl;
using unit_net::Net;
using unit_net::rows_of;
using unit_net::values_of;

/// This rank's group of `size` consecutive ranks.
comm::Group secondary_of(const world::World& world, int size) {
  return *world.group().split(world.rank() / size, world.rank(), "secondary");
}

/// A job, which must end with the same bits however it is resharded.
struct Job {
  const char* name;
  UnitCalls calls = UnitCalls::kExplicit;
  int in_flight = 2;
  int64_t num_grains = 0;
  bool is_low = false;         ///< Computes in bfloat16.
  bool recomputes = false;     ///< Units again in backward.
  bool accumulates = false;    ///< Two micro-batches, reduced once.
  bool adds = false;           ///< Two micro-batches, each reduced.
  bool looks_between = false;  ///< At full parameters, before backward.
};

const std::vector<Job> kJobs = {
    {"plain"},
    {"one in flight", UnitCalls::kExplicit, 1},
    {"three in flight", UnitCalls::kExplicit, 3},
    {"lens", UnitCalls::kLens},
    {"stable", UnitCalls::kExplicit, 2, 8},
    {.name = "low", .is_low = true},
    {.name = "recomputed", .recomputes = true},
    {.name = "recomputed, lens", .calls = UnitCalls::kLens, .recomputes = true},
    {.name = "accumulated", .accumulates = true},
    {.name = "added", .adds = true},
    {.name = "looked at", .looks_between = true}};

void backward(Net& net, Sharded& sharded, const Job& job, const at::Tensor& x) {
  const at::Tensor y = job.calls == UnitCalls::kLens ? net.forward(x) : unit(net)(x);
  const at::Tensor loss = y.to(torch::kFloat).square().sum();
  if (job.looks_between) const auto full = sharded.full_parameters();
  loss.backward();
}

void step_of(Net& net, Sharded& sharded, const Job& job, int step, int rank) {
  if (job.num_grains > 0) {
    for (int64_t grain = sharded.grains().begin; grain < sharded.grains().end; ++grain) {
      sharded.grain(grain);
      backward(net, sharded, job, rows_of(step, static_cast<int>(grain)));
    }
    return;
  }
  if (job.accumulates) {
    const auto guard = sharded.accumulate();
    backward(net, sharded, job, rows_of(step, 10 + rank));
  } else if (job.adds) {
    backward(net, sharded, job, rows_of(step, 10 + rank));
  }
  backward(net, sharded, job, rows_of(step, rank));
}

Values train(const world::World& world, const Job& job,
             const std::optional<comm::Group>& secondary) {
  Net net(world.rank());
  net.recomputes = job.recomputes;
  FullyShardOptions options{.calls = job.calls,
                            .units = units_of_type<BlockImpl>(),
                            .reshard_after_forward_to = secondary};
  options.sharding = {
      .share_memory = false, .max_units_in_flight = job.in_flight, .num_grains = job.num_grains};
  if (job.is_low) options.sharding.precision.param_dtype = torch::kBFloat16;
  auto sharded = fully_shard(net, world.group(), options);
  torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    step_of(net, sharded, job, step, world.rank());
    sharded.step(optimizer);
  }
  const auto full = sharded.full_parameters();
  return values_of(net);
}

TEST(PartialResharding, HasTheBitsOfFullSharding) {
  run_ranks(4, [](world::World& world) {
    const std::vector<comm::Group> secondaries = {secondary_of(world, 2), secondary_of(world, 4),
                                                  secondary_of(world, 1)};
    for (const Job& job : kJobs) {
      const Values expected = train(world, job, {});
      EXPECT_FALSE(same_bits(expected, values_of(*std::make_unique<Net>())));
      for (const comm::Group& secondary : secondaries) {
        EXPECT_TRUE(same_bits(train(world, job, secondary), expected))
            << job.name << ", " << secondary.size() << " secondary";
      }
    }
  });
}

TEST(PartialResharding, OfHybridShardsIsWithinTheirGroup) {
  run_ranks(4, [](world::World& world) {
    const auto mesh = world.mesh({{"dp", 1}, {"fsdp", 4}});
    Values expected;
    for (const bool resharded : {false, true}) {
      Net net;
      FullyShardOptions options{.strategy = ShardingStrategy::kHybridShard,
                                .units = units_of_type<BlockImpl>()};
      options.sharding = {.replicas = mesh["dp"], .share_memory = false};
      if (resharded) options.reshard_after_forward_to = secondary_of(world, 2);
      auto sharded = fully_shard(net, mesh["fsdp"], options);
      unit(net)(rows_of(0, world.rank())).square().sum().backward();
      Values gradients = {test_net::flat_gradients(sharded)};
      if (!resharded) expected = gradients;
      EXPECT_TRUE(same_bits(gradients, expected));
    }
  });
}

/// Bytes of one forward and backward.
struct Moved {
  int64_t forward = 0;  ///< All in the group: of a forward without a graph.
  int64_t group = 0;    ///< Of a step, in the group.
  int64_t secondary = 0;
};

Moved moved_by(const world::World& world, const std::optional<comm::Group>& secondary,
               bool recomputes = false) {
  Sequential net;
  for (int i = 0; i < 4; ++i) net->push_back(torch::nn::Linear(64, 64));
  FullyShardOptions options{.sharding = {.share_memory = false},
                            .reshard_after_forward_to = secondary};
  auto sharded = fully_shard(*net, world.group(), options);
  const at::Tensor x = torch::ones({2, 64});
  const auto bytes = [&] {
    return std::pair(world.group().stats().bytes, secondary ? secondary->stats().bytes : 0);
  };
  const auto start = bytes();
  {
    const torch::NoGradGuard no_grad;
    net->forward(x);
  }
  const auto evaluated = bytes();
  EXPECT_EQ(evaluated.second, start.second) << "no backward will come";
  const auto forward = [&](const at::Tensor& in) { return net->forward(in); };
  (recomputes ? checkpointed(forward, x) : forward(x)).sum().backward();
  const auto end = bytes();
  return {evaluated.first - start.first, end.first - evaluated.first,
          end.second - evaluated.second};
}

TEST(PartialResharding, BackwardGathersNothingFromTheWholeGroup) {
  run_ranks(4, [](world::World& world) {
    const Moved full = moved_by(world, {});
    const Moved partial = moved_by(world, secondary_of(world, 2));
    EXPECT_GT(full.forward, 0);
    EXPECT_EQ(partial.forward, full.forward);
    EXPECT_EQ(full.group - partial.group, full.forward) << "the all_gathers of backward";
    EXPECT_GT(partial.secondary, 0);
    const Moved again = moved_by(world, secondary_of(world, 2), /*recomputes=*/true);
    EXPECT_EQ(again.group, partial.group) << "nor to compute units again";
    EXPECT_EQ(again.secondary, partial.secondary);
    EXPECT_EQ(moved_by(world, secondary_of(world, 4)).group, full.group);
    const Moved whole = moved_by(world, secondary_of(world, 1));
    EXPECT_EQ(whole.group, partial.group);
    EXPECT_EQ(whole.secondary, 0) << "units stay whole";
  });
}

TEST(PartialResharding, AShareOfEachUnitIsKeptFromForwardToBackward) {
  run_ranks(4, [](world::World& world) {
    Net net;
    FullyShardOptions options{.units = units_of_type<BlockImpl>(),
                              .reshard_after_forward_to = secondary_of(world, 2)};
    options.sharding.share_memory = false;
    auto sharded = fully_shard(net, world.group(), options);
    const auto kept = [&] { return world.heap().usage()["resharded units"]; };
    const at::Tensor loss = unit(net)(rows_of(0, 0)).square().sum();
    const size_t block = 24 * 83 * 2 + 83 + 24;  // elements, of two blocks
    EXPECT_GT(kept(), 4 * 2 * block / 2 - 2 * 4 * 1100);
    EXPECT_LT(kept(), 4 * 2 * block / 2 + 2 * 4 * 1100);
    loss.backward();
    EXPECT_EQ(kept(), 0u);
    {
      const torch::NoGradGuard no_grad;
      unit(net)(rows_of(0, 0));
      EXPECT_EQ(kept(), 0u) << "no backward will come";
    }
    unit(net)(rows_of(0, 0));
    sharded.step([] {});
    EXPECT_EQ(kept(), 0u) << "a step makes what is kept old";
    EXPECT_THAT(describe(sharded),
                HasSubstr("units are resharded over 2 ranks, reshard_after_forward_to, which"));
  });
}

TEST(PartialResharding, ChangesNothingWhereParametersLieOnce) {
  run_ranks(4, [](world::World& world) {
    Net net;
    const comm::Group secondary = secondary_of(world, 2);
    auto sharded =
        fully_shard(net, world.group(),
                    {.units = units_of_type<BlockImpl>(), .reshard_after_forward_to = secondary});
    const int64_t before = secondary.stats().operations;
    unit(net)(rows_of(0, 0)).square().sum().backward();
    EXPECT_EQ(secondary.stats().operations, before);
    EXPECT_THAT(describe(sharded), HasSubstr("not resharded over 2 ranks, "
                                             "reshard_after_forward_to: it changes nothing"));
  });
}

TEST(PartialResharding, ShardsMayLieInAFile) {
  const test::TemporaryFolder folder;
  run_ranks(4, [&](world::World& world) {
    Values expected;
    for (const bool in_file : {false, true}) {
      Net net;
      FullyShardOptions options{.units = units_of_type<BlockImpl>()};
      options.sharding.share_memory = false;
      if (in_file) {
        options.sharding.offload = ShardOffload{.gradients = false, .folder = folder.path()};
        options.reshard_after_forward_to = secondary_of(world, 2);
      }
      auto sharded = fully_shard(net, world.group(), options);
      for (const int step : {0, 1}) {
        unit(net)(rows_of(step, world.rank())).square().sum().backward();
      }
      Values gradients = {test_net::flat_gradients(sharded)};
      if (!in_file) expected = gradients;
      EXPECT_TRUE(same_bits(gradients, expected));
    }
  });
}

TEST(PartialResharding, HostsExchangeLess) {
  if (!comm::gloo::available()) GTEST_SKIP() << "this libtorch has no Gloo";
  run_ranks(4, [](world::World& world) {
    const comm::Group hosts = comm::gloo::make_group(world.group());
    Values expected;
    int64_t full_bytes = 0;
    for (const bool resharded : {false, true}) {
      Net net;
      FullyShardOptions options{.units = units_of_type<BlockImpl>()};
      if (resharded) options.reshard_after_forward_to = secondary_of(world, 2);  // by shared memory
      auto sharded = fully_shard(net, hosts, options);
      const int64_t before = hosts.stats().network_bytes;
      unit(net)(rows_of(0, world.rank())).square().sum().backward();
      const int64_t bytes = hosts.stats().network_bytes - before;
      Values gradients = {test_net::flat_gradients(sharded)};
      if (!resharded) {
        expected = gradients;
        full_bytes = bytes;
      }
      EXPECT_TRUE(same_bits(gradients, expected));
      EXPECT_EQ(bytes < full_bytes, resharded);
    }
  });
}

TEST(PartialReshardingErrors, OtherRanksAndOtherStrategiesAreRefusedByAll) {
  run_ranks(4, [](world::World& world) {
    const auto said = [&](const std::optional<comm::Group>& secondary,
                          ShardingStrategy strategy = {},
                          ShardingOptions sharding = {.share_memory = false}) {
      Net net;
      return refusal([&] {
        fully_shard(net, world.group(),
                    {.sharding = sharding,
                     .strategy = strategy,
                     .units = units_of_type<BlockImpl>(),
                     .reshard_after_forward_to = secondary});
      });
    };
    const comm::Group two = secondary_of(world, 2);
    EXPECT_THAT(said(two, ShardingStrategy::kShardGradOp), HasSubstr("with SHARD_GRAD_OP, which"));
    EXPECT_THAT(said(two, ShardingStrategy::kNoShard), HasSubstr("with NO_SHARD, which"));
    EXPECT_THAT(said(two, {}, {.share_memory = false, .num_grains = 6}),
                HasSubstr("different numbers of grains"));
    const comm::Group across = *world.group().split(world.rank() % 2, world.rank(), "across");
    EXPECT_THAT(said(across), HasSubstr(world.rank() % 2 == 0 ? "joins ranks 0, 2 of group"
                                                              : "joins ranks 1, 3 of group"));
    const comm::Group turned = *world.group().split(world.rank() / 2, -world.rank(), "turned");
    EXPECT_THAT(said(turned), HasSubstr("take consecutive ones in their order"));
    const comm::Group three = *world.group().split(world.rank() / 3, world.rank(), "three");
    EXPECT_THAT(said(three), HasSubstr("reshard_after_forward_to"));
    std::optional<comm::Group> mine;
    if (world.rank() != 2) mine = two;
    EXPECT_THAT(said(mine), HasSubstr(world.rank() == 2 ? "rank 2 has \"nothing\""
                                                        : "has \"2 ranks\" (other on ranks 2)"));
  });
}

}  // namespace resharding
}  // namespace
}  // namespace hanji::parallel
