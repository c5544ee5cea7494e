// Shards of float32 masters that are computed with in fewer bits.
#include "hanji/parallel/fsdp/mixed_precision.h"

#include <gmock/gmock.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hanji/comm/barrier.h"
#include "hanji/comm/heap.h"
#include "hanji/parallel/fsdp/description.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/sequential.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/fsdp/test_unit_net.h"
#include "hanji/parallel/fsdp/whole_values.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/loss_scaler.h"

namespace hanji::parallel {
namespace {

namespace mixed_precision {

using test::run_ranks;
using test_net::refusal;
using test_net::same_bits;
using test_net::Values;
using testing::HasSubstr;
using unit_net::Block;
using unit_net::BlockImpl;
using unit_net::Net;
using unit_net::rows_of;
using unit_net::values_of;

constexpr auto kLow = torch::kBFloat16;

/// How a net is sharded.
struct Way {
  const char* name;
  bool full = true;
  bool share_memory = true;
  UnitCalls calls = UnitCalls::kExplicit;
};
const std::vector<Way> kWays = {{"shared"},
                                {"gathered", true, false},
                                {"lens", true, false, UnitCalls::kLens},
                                {"optimizer", false},
                                {"optimizer apart", false, false}};

MixedPrecisionPolicy policy_of(const Way& way, std::optional<at::ScalarType> reduce) {
  MixedPrecisionPolicy policy{.param_dtype = kLow, .reduce_dtype = reduce};
  if (way.full && way.calls == UnitCalls::kExplicit) policy.output_dtype = torch::kFloat;
  return policy;
}

Sharded shard(Net& net, const comm::Group& group, const Way& way, ShardingOptions sharding) {
  sharding.share_memory = way.share_memory;
  if (!way.full) return shard_optimizer(net, group, {.sharding = sharding, .unit_bytes = 5000});
  return fully_shard(
      net, group, {.sharding = sharding, .calls = way.calls, .units = units_of_type<BlockImpl>()});
}

/// Arguments and results are cast by the policy where it can, else here.
at::Tensor loss_of(Net& net, const Way& way, const at::Tensor& x) {
  const bool casts = way.full && way.calls == UnitCalls::kExplicit;
  const at::Tensor y = casts ? unit(net)(x) : net.forward(x.to(kLow)).to(torch::kFloat);
  EXPECT_EQ(y.scalar_type(), torch::kFloat);
  return y.square().mean();
}

/// One process, by hand: float32 masters, a copy in `low`, a gradient for each rank and micro-batch.
struct ByHand {
  explicit ByHand(at::ScalarType sums) : sums(sums) { computed.to(kLow); }

  Values gradients(int step, int part) {
    const torch::NoGradGuard no_grad;
    const auto from = masters.parameters(), to = computed.parameters();
    for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
    computed.zero_grad(true);
    {
      const torch::AutoGradMode grad(true);
      const at::Tensor y = computed.forward(rows_of(step, part).to(kLow)).to(torch::kFloat);
      const at::Tensor loss = y.square().mean();
      loss.backward();
      losses.push_back(loss.item<double>());
    }
    Values found;
    for (const at::Tensor& p : computed.learning()) found.push_back(p.grad().to(sums));
    return found;
  }
  /// Of the parts of each rank, the mean over ranks by the tree.
  void set_gradients(int step, int ranks, int parts) {
    std::vector<Values> of_rank;
    for (int rank = 0; rank < ranks; ++rank) {
      of_rank.push_back(gradients(step, rank * parts));
      for (int part = 1; part < parts; ++part) {
        const Values more = gradients(step, rank * parts + part);
        for (size_t i = 0; i < more.size(); ++i) of_rank.back()[i] += more[i];
      }
    }
    const auto learning = masters.learning();
    for (size_t i = 0; i < learning.size(); ++i) {
      const auto sum = [&](auto& self, int begin, int end) -> at::Tensor {
        if (end - begin == 1) return of_rank[begin][i];
        const int middle = begin + static_cast<int>(schedule::split_point(end - begin));
        return self(self, begin, middle) + self(self, middle, end);
      };
      learning[i].mutable_grad() = (sum(sum, 0, ranks) / ranks).to(torch::kFloat);
    }
  }

  Net masters, computed;
  at::ScalarType sums;
  std::vector<double> losses;
};

constexpr int kSteps = 3;

void expect_steps_by_hand(int ranks, std::optional<at::ScalarType> reduce, int parts) {
  ByHand by_hand(reduce.value_or(kLow));
  torch::optim::AdamW theirs(by_hand.masters.learning(), 1e-2);
  std::vector<double> norms;
  for (int step = 0; step < kSteps; ++step) {
    by_hand.set_gradients(0, ranks, parts);
    norms.push_back(clip_grad_norm(by_hand.masters.learning(), 0.5));
    theirs.step();
  }
  const size_t size = by_hand.losses.size() / kSteps;
  EXPECT_LT(by_hand.losses.back(), 0.9 * by_hand.losses[size - 1]) << "it learns";
  const Values expected = values_of(by_hand.masters);
  run_ranks(ranks, [&](world::World& world) {
    for (const Way& way : kWays) {
      Net net(world.rank());
      auto sharded = shard(net, world.group(), way, {.precision = policy_of(way, reduce)});
      torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        for (int part = 0; part + 1 < parts; ++part) {
          const auto guard = sharded.accumulate();
          loss_of(net, way, rows_of(0, world.rank() * parts + part)).backward();
        }
        loss_of(net, way, rows_of(0, world.rank() * parts + parts - 1)).backward();
        EXPECT_EQ(sharded.clip_grad_norm(0.5), norms[step]) << way.name;
        sharded.step(optimizer);
      }
      for (const at::Tensor& p : net.parameters()) EXPECT_EQ(p.scalar_type(), kLow);
      const auto full = sharded.full_parameters();
      EXPECT_TRUE(same_bits(values_of(net), expected)) << way.name << ", " << ranks << " ranks";
    }
  });
}

TEST(ShardPrecision, StepsAreThoseOfMastersByHandWithFloat32Sums) {
  for (const int ranks : {2, 3}) expect_steps_by_hand(ranks, torch::kFloat, 1);
}
TEST(ShardPrecision, StepsAreThoseOfMastersByHandWithSumsOf16Bits) {
  expect_steps_by_hand(2, {}, 1);
}
TEST(ShardPrecision, MicroBatchesAreAddedUpInTheDtypeOfSums) {
  expect_steps_by_hand(2, torch::kFloat, 2);
}

TEST(ShardPrecision, EveryBackwardMayAddToTheShards) {
  ByHand by_hand(torch::kFloat);
  by_hand.set_gradients(0, 2, 1);
  Values sums;
  for (const at::Tensor& p : by_hand.masters.learning()) sums.push_back(p.grad().clone());
  by_hand.set_gradients(1, 2, 1);
  run_ranks(2, [&](world::World& world) {
    for (const Way& way : kWays) {
      Net net;
      auto sharded = shard(net, world.group(), way, {.precision = policy_of(way, torch::kFloat)});
      for (const int step : {0, 1}) loss_of(net, way, rows_of(step, world.rank())).backward();
      std::vector<at::Tensor> own;
      for (const at::Tensor& p : sharded.parameters()) own.push_back(p.grad());
      const auto whole = gather_values(sharded, own);
      const auto learning = learning_parameters(by_hand.masters);
      for (const NamedParameter& entry : whole) {
        const size_t i =
            std::ranges::find(learning, entry.name, &NamedParameter::name) - learning.begin();
        ASSERT_LT(i, learning.size());
        EXPECT_TRUE(at::equal(entry.tensor, sums[i] + learning[i].tensor.grad())) << entry.name;
      }
    }
  });
}

TEST(ShardPrecision, UnitsMayBeComputedAgainInBackward) {
  run_ranks(2, [&](world::World& world) {
    at::Tensor expected;
    for (const bool recomputes : {false, true}) {
      Net net;
      net.recomputes = recomputes;
      auto sharded = shard(net, world.group(), kWays[1], {.precision = policy_of(kWays[1], {})});
      loss_of(net, kWays[1], rows_of(0, world.rank())).backward();
      const at::Tensor gradients = test_net::flat_gradients(sharded);
      if (!recomputes) expected = gradients;
      EXPECT_GT(gradients.abs().max().item<float>(), 0);
      EXPECT_TRUE(at::equal(gradients, expected));
    }
  });
}

TEST(ShardPrecision, HybridShardsTakeTheSameSteps) {
  ByHand by_hand(torch::kFloat);
  torch::optim::AdamW theirs(by_hand.masters.learning(), 1e-2);
  for (int step = 0; step < kSteps; ++step) {
    by_hand.set_gradients(0, 4, 1);
    theirs.step();
  }
  run_ranks(4, [&](world::World& world) {
    const auto mesh = world.mesh({{"dp", 2}, {"fsdp", 2}});
    for (const Way& way : kWays) {
      Net net(world.rank());
      auto sharded = shard(net, mesh["fsdp"], way,
                           {.replicas = mesh["dp"], .precision = policy_of(way, torch::kFloat)});
      torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        loss_of(net, way, rows_of(0, world.rank())).backward();
        sharded.step(optimizer);
      }
      const auto full = sharded.full_parameters();
      EXPECT_TRUE(same_bits(values_of(net), values_of(by_hand.masters))) << way.name;
    }
  });
}

Values train_stable(const comm::Group& group, const Way& way) {
  Net net;
  auto sharded = shard(
      net, group, way,
      {.average = Average::kSum, .num_grains = 4, .precision = policy_of(way, torch::kFloat)});
  torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
  for (int step = 0; step < 3; ++step) {
    for (int64_t grain = sharded.grains().begin; grain < sharded.grains().end; ++grain) {
      sharded.grain(grain);
      loss_of(net, way, rows_of(step, static_cast<int>(grain))).backward();
    }
    sharded.step(optimizer);
  }
  const auto full = sharded.full_parameters();
  return values_of(net);
}

TEST(ShardPrecision, StableBitsDoNotDependOnRanksOrHowItIsSharded) {
  Values expected;
  run_ranks(1, [&](world::World& world) { expected = train_stable(world.group(), kWays[0]); });
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [&](world::World& world) {
      for (const Way& way : kWays) {
        EXPECT_TRUE(same_bits(train_stable(world.group(), way), expected)) << way.name;
      }
    });
  }
}

/// Bytes that a forward without a graph, and a step, give to collectives.
std::pair<int64_t, int64_t> bytes_of(const world::World& world,
                                     const MixedPrecisionPolicy& policy) {
  Sequential net;
  for (int i = 0; i < 3; ++i) net->push_back(torch::nn::Linear(64, 64));
  auto sharded =
      fully_shard(*net, world.group(), {.sharding = {.share_memory = false, .precision = policy}});
  const at::Tensor x = torch::ones({2, 64});
  const int64_t start = world.group().stats().bytes;
  {
    const torch::NoGradGuard no_grad;
    net->forward(x);
  }
  const int64_t forward = world.group().stats().bytes - start;
  net->forward(x).sum().backward();
  const int64_t step = world.group().stats().bytes - start - forward;
  return {forward, step};
}

TEST(ShardPrecision, HalfTheBytesTravel) {
  run_ranks(2, [](world::World& world) {
    const int64_t used = 6;  // one byte for each parameter: who has a gradient
    const auto [forward, step] = bytes_of(world, {});
    const auto [low_forward, low_step] = bytes_of(world, {.param_dtype = kLow});
    const auto [wide_forward, wide_step] =
        bytes_of(world, {.param_dtype = kLow, .reduce_dtype = torch::kFloat});
    EXPECT_EQ(forward, 2 * low_forward);
    EXPECT_EQ(step - used, 2 * (low_step - used));
    EXPECT_EQ(wide_forward, low_forward);
    EXPECT_GT(wide_step, low_step);
    EXPECT_LT(wide_step, step);
  });
}

TEST(ShardPrecision, OneCopyOfWhatIsComputedWithLiesOnTheHost) {
  run_ranks(2, [](world::World& world) {
    Net net, plain;
    int64_t elements = 0;
    for (const auto& p : plain.parameters()) elements += p.numel();
    auto sharded = shard(net, world.group(), kWays[0], {.precision = {.param_dtype = kLow}});
    const auto usage = world.heap().usage();
    EXPECT_EQ(usage.contains("parameters"), world.rank() == 0);
    if (world.rank() == 0) {
      EXPECT_LT(usage.at("parameters"), 2 * elements + 12 * 128);
    }
    EXPECT_GT(usage.at("parameter shards"), elements);
    const std::string said = describe(sharded);
    EXPECT_THAT(said, HasSubstr("param_dtype BFloat16, inputs of units are cast; the shards"));
    EXPECT_THAT(said, HasSubstr("elements of Float, computed with in BFloat16, gradients added up "
                                "in BFloat16, shards"));
  });
}

TEST(ShardPrecision, OnOneHostWhatIsComputedWithOutlivesTheShards) {
  run_ranks(2, [](world::World& world) {
    Net net;
    const Values before = values_of(net);
    { auto sharded = shard(net, world.group(), kWays[0], {.precision = {.param_dtype = kLow}}); }
    const Values after = values_of(net);
    for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(at::equal(after[i], before[i].to(kLow)));
    net.forward(rows_of(0, 0).to(kLow)).sum().backward();
    EXPECT_EQ(net.first->weight.grad().scalar_type(), kLow) << "and ordinary gradients";
  });
}

TEST(ShardPrecision, ADeferredModulesInitialValuesAreThoseOfTheMasters) {
  run_ranks(2, [](world::World& world) {
    for (const bool share : {true, false}) {
      Values expected;
      for (const bool mixed : {false, true}) {
        const auto built = lens::deferred([] { return Block(); });
        FullyShardOptions options{.sharding = {.share_memory = share}};
        if (mixed) options.sharding.precision.param_dtype = kLow;
        auto sharded = fully_shard(built, world.group(), options);
        Block block = built.module;
        const auto y = unit(block)(torch::ones({2, 24}));
        EXPECT_EQ(y.scalar_type(), mixed ? kLow : torch::kFloat);
        const auto full = sharded.full_parameters();
        Values values;
        for (const auto& p : block->parameters()) values.push_back(p.detach().clone());
        if (!mixed) expected = values;
        EXPECT_TRUE(same_bits(values, expected));
      }
    }
  });
}

TEST(ShardPrecision, FullParametersAreTheMasters) {
  run_ranks(2, [](world::World& world) {
    for (const Way& way : kWays) {
      Net net, other(7);
      auto sharded = shard(net, world.group(), way, {.precision = policy_of(way, {})});
      const at::Tensor loss = loss_of(net, way, rows_of(0, 0));
      const at::Tensor x = rows_of(0, world.rank());
      at::Tensor kept;
      {
        const auto full = sharded.full_parameters();
        EXPECT_TRUE(same_bits(values_of(net), values_of(*std::make_unique<Net>())));
        comm::barrier(world.group());  // where masters lie once, what one writes all see
        const torch::NoGradGuard no_grad;
        const auto theirs = other.named_parameters();
        for (const auto& item : net.named_parameters()) item.value().copy_(theirs[item.key()]);
        other.scale.copy_(net.scale);
        EXPECT_TRUE(at::equal(unit(net)(x), other.forward(x))) << "an ordinary module";
        kept = net.first->weight.t();
        if (way.full || !way.share_memory) {
          EXPECT_THAT(refusal([&] { sharded.step([] {}); }), HasSubstr("full_parameters() lives"));
        }
      }
      EXPECT_THAT(refusal([&] { kept.sum(); }), HasSubstr("parameter first.weight"));
      EXPECT_EQ(net.first->weight.scalar_type(), kLow);
      const torch::NoGradGuard no_grad;
      const double now = loss_of(net, way, x).item<double>();
      other.to(kLow);
      const double expected =
          other.forward(x.to(kLow)).to(torch::kFloat).square().mean().item<double>();
      if (way.name != std::string("lens")) {
        EXPECT_EQ(now, expected) << way.name;
      }
      const auto full = sharded.full_parameters();
      EXPECT_TRUE(same_bits(values_of(net), values_of(*std::make_unique<Net>(7))))
          << way.name << ": what bfloat16 cannot hold is still there";
    }
  });
}

TEST(ShardPrecision, TheOptimizersStateIsThatOfMasters) {
  ByHand by_hand(torch::kFloat);
  torch::optim::AdamW theirs(by_hand.masters.learning(), 1e-2);
  by_hand.set_gradients(0, 2, 1);
  theirs.step();
  run_ranks(2, [&](world::World& world) {
    Net net;
    auto sharded =
        shard(net, world.group(), kWays[1], {.precision = policy_of(kWays[1], torch::kFloat)});
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    loss_of(net, kWays[1], rows_of(0, world.rank())).backward();
    sharded.step(optimizer);
    const auto full = sharded.full_parameters();
    torch::optim::AdamW whole(net.learning(), 1e-2);
    gather_state(sharded, optimizer, whole);
    const auto moment = [](torch::optim::AdamW& of, const at::Tensor& p) {
      const auto& state = *of.state().at(p.unsafeGetTensorImpl());
      return static_cast<const torch::optim::AdamWParamState&>(state).exp_avg();
    };
    EXPECT_TRUE(at::equal(moment(whole, net.twice->widen->weight),
                          moment(theirs, by_hand.masters.twice->widen->weight)));
    scatter_state(sharded, whole, optimizer);
  });
}

TEST(ShardPrecision, Float16LearnsWithALossScaler) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto sharded =
        shard(net, world.group(), kWays[1],
              {.precision = {.param_dtype = torch::kHalf, .output_dtype = torch::kFloat}});
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    LossScaler scaler(world.group(), {.initial = 0x1p40, .backoff = 0x1p-20});
    std::vector<double> losses;
    int num_left_out = 0;
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = unit(net)(rows_of(0, world.rank())).square().mean();
      scaler.scale(loss).backward();
      losses.push_back(loss.item<double>());
      if (scaler.unscale_of(sharded.parameters())) {
        sharded.step(optimizer);
      } else {
        ++num_left_out;
      }
    }
    EXPECT_GE(num_left_out, 1) << "2^40 overflows";
    EXPECT_LE(num_left_out, 2);
    EXPECT_EQ(losses[1], losses[0]) << "a step that overflowed is left out";
    EXPECT_LT(losses.back(), 0.9 * losses[0]);
  });
}

TEST(ShardPrecision, BuffersAreConvertedForGood) {
  run_ranks(2, [](world::World& world) {
    Net net(world.rank());
    auto sharded =
        shard(net, world.group(), kWays[0], {.precision = {.buffer_dtype = torch::kDouble}});
    EXPECT_EQ(net.scale.item<double>(), 1.0 + static_cast<float>(0x1p-20)) << "rank 0's";
    EXPECT_EQ(net.scale.scalar_type(), torch::kDouble);
    EXPECT_EQ(net.named_buffers()["scale"].scalar_type(), torch::kDouble);
    EXPECT_EQ(net.first->weight.scalar_type(), torch::kFloat);
  });
}

/// A weight that learns, and parameters that do not and are not floating.
struct Indexed : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    EXPECT_EQ(weight.scalar_type(), kLow);
    EXPECT_EQ(turn.scalar_type(), torch::kComplexFloat);
    return (x * weight).index_select(0, index) * at::real(turn).to(x.scalar_type());
  }
  at::Tensor weight = register_parameter("weight", torch::arange(8).to(torch::kFloat));
  at::Tensor index = register_parameter("index", torch::arange(7, -1, -1, torch::kLong), false);
  at::Tensor turn = register_parameter("turn", torch::ones({8}, torch::kComplexFloat), false);
};

TEST(ShardPrecision, ParametersThatAreNotFloatingStayWhatTheyAre) {
  run_ranks(2, [](world::World& world) {
    for (const bool share : {true, false}) {
      Indexed net;
      auto sharded =
          fully_shard(net, world.group(),
                      {.sharding = {.share_memory = share, .precision = {.param_dtype = kLow}}});
      const at::Tensor y = unit(net)(torch::full({8}, 2.0F));
      EXPECT_TRUE(at::equal(y, 2 * torch::arange(7, -1, -1).to(kLow)));
      y.sum().backward();
      for (const Shard& shard : sharded.shards()) {
        if (shard.elements.size() == 0 || shard.name != "weight") continue;
        EXPECT_EQ(shard.tensor.grad().scalar_type(), shard.tensor.scalar_type()) << shard.name;
      }
    }
  });
}

/// Arguments of many kinds, and a result with a type of its own.
struct Answer {
  at::Tensor value;
};
struct MuteAnswer : Answer {};
void collect_tensors(const Answer& answer, std::vector<at::Tensor>& tensors) {
  tensors.push_back(answer.value);
}
void cast_tensors(Answer& answer, at::ScalarType dtype) { answer.value = answer.value.to(dtype); }
void cast_tensors(MuteAnswer&, at::ScalarType) = delete;

template <class Result>
struct Manifold : torch::nn::Module {
  Result forward(const std::vector<at::Tensor>& some, std::optional<at::Tensor> maybe,
                 std::pair<at::Tensor, int> both, const char (&word)[3], at::Tensor& changed) {
    for (const at::Tensor& x : some) EXPECT_EQ(x.scalar_type(), dtype);
    EXPECT_EQ(maybe->scalar_type(), torch::kLong) << "no floating one";
    EXPECT_EQ(both.first.scalar_type(), dtype);
    EXPECT_EQ(changed.scalar_type(), dtype);
    EXPECT_STREQ(word, "ab");
    return {linear(changed.to(linear->weight.scalar_type()))};
  }
  at::ScalarType dtype = kLow;
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(2, 2));
};

TEST(ShardPrecision, ArgumentsAndResultsOfManyKindsAreCast) {
  run_ranks(1, [](world::World& world) {
    at::Tensor x = torch::ones({1, 2});
    const auto call = [&](auto& net) {
      return unit(net)(std::vector<at::Tensor>{x, x}, torch::ones({1}, torch::kLong),
                       std::pair<at::Tensor, int>(x, 1), "ab", x);
    };
    MixedPrecisionPolicy policy{.param_dtype = kLow, .output_dtype = torch::kDouble};
    Manifold<Answer> net;
    auto sharded = fully_shard(net, world.group(), {.sharding = {.precision = policy}});
    EXPECT_EQ(call(net).value.scalar_type(), torch::kDouble);
    EXPECT_EQ(x.scalar_type(), torch::kFloat) << "the caller's";
    Manifold<MuteAnswer> mute;
    auto other = fully_shard(mute, world.group(), {.sharding = {.precision = policy}});
    EXPECT_THAT(refusal([&] { call(mute); }), HasSubstr("cast_tensors(T&, at::ScalarType)"));
    Manifold<Answer> kept;
    kept.dtype = torch::kFloat;
    policy.cast_forward_inputs = false;
    auto third = fully_shard(kept, world.group(), {.sharding = {.precision = policy}});
    call(kept);
  });
}

TEST(ShardPrecisionErrors, WhatCannotBeIsRefusedByAll) {
  run_ranks(2, [](world::World& world) {
    const auto said = [&](const Way& way, ShardingOptions sharding) {
      Net net;
      return refusal([&] { shard(net, world.group(), way, sharding); });
    };
    const Way& lens = kWays[2];
    const Way& optimizer = kWays[3];
    EXPECT_THAT(said(kWays[0], {.precision = {.param_dtype = torch::kInt}}),
                HasSubstr("precision.param_dtype is Int; choose float64"));
    EXPECT_THAT(said(kWays[0], {.precision = {.reduce_dtype = torch::kFloat8_e5m2}}),
                HasSubstr("precision.reduce_dtype is Float8"));
    for (const Way& way : {lens, optimizer}) {
      EXPECT_THAT(said(way, {.precision = {.output_dtype = torch::kFloat}}),
                  HasSubstr("precision.output_dtype needs units that are called by name"));
      EXPECT_THAT(said(way, {.precision = {.param_dtype = kLow, .cast_forward_inputs = true}}),
                  HasSubstr("precision.cast_forward_inputs needs"));
    }
    EXPECT_THAT(said(kWays[0], {.precision = {.cast_forward_inputs = true}}),
                HasSubstr("has no param_dtype to cast to"));
    EXPECT_THAT(said(kWays[0], {.num_grains = 2, .precision = {.param_dtype = kLow}}),
                HasSubstr("give precision.reduce_dtype = float32"));
    MixedPrecisionPolicy own;
    if (world.rank() == 1) own.param_dtype = kLow;
    EXPECT_THAT(said(kWays[0], {.precision = own}),
                HasSubstr("the option precision differs between ranks"));
    if (world.rank() == 1) own.param_dtype = torch::kInt;
    EXPECT_THAT(said(kWays[0], {.precision = own}), HasSubstr("precision"));
  });
}

TEST(ShardPrecisionErrors, AUnitOutsideTheRootHasNobodyToCastTheOutput) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto sharded = shard(net, world.group(), kWays[1], {.precision = policy_of(kWays[1], {})});
    EXPECT_THAT(refusal([&] {
                  unit(net.twice)(torch::ones({2, 24}));
                }),
                HasSubstr("unit twice is called outside of it"));
  });
}

}  // namespace mixed_precision
}  // namespace
}  // namespace hanji::parallel
