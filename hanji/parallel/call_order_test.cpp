// Calls of equal shape that ranks make for other units, or other handles, never match.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/fsdp/whole_values.h"
#include "hanji/parallel/loss_scaler.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

namespace call_order {

using test::run_ranks;
using test_net::refusal;
using testing::AllOf;
using testing::HasSubstr;

/// Two experts of equal size.
struct Experts : torch::nn::Module {
  Experts() {
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.fill_(0.5);
  }
  torch::nn::Linear left = register_module("left", torch::nn::Linear(4, 4));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(4, 4));
};

FullyShardOptions gathered(UnitCalls calls) {
  FullyShardOptions options{.calls = calls};
  options.units = [](const std::string&, const torch::nn::Module&) { return true; };
  options.sharding.share_memory = false;
  return options;
}

TEST(CallOrder, RanksInDifferentUnitsAreTold) {
  run_ranks(2, [](world::World& world) {
    Experts net;
    auto sharded = fully_shard(net, world.group(), gathered(UnitCalls::kExplicit));
    auto& mine = world.rank() == 0 ? net.left : net.right;
    EXPECT_THAT(refusal([&] {
                  unit(mine)(torch::ones({2, 4}));
                }),
                AllOf(HasSubstr("fully_shard: the ranks compute different units"),
                      HasSubstr("(left)"), HasSubstr("(right)"),
                      HasSubstr("run the same units in the same order on every rank")));
  });
}

TEST(CallOrder, RanksInDifferentUnitsThatNobodyCallsByNameAreTold) {
  run_ranks(2, [](world::World& world) {
    Experts net;
    auto sharded = fully_shard(net, world.group(), gathered(UnitCalls::kLens));
    auto& mine = world.rank() == 0 ? net.left : net.right;
    EXPECT_THAT(refusal([&] {
                  mine(torch::ones({2, 4}));
                }),
                AllOf(HasSubstr("different units"), HasSubstr("(left)"), HasSubstr("(right)")));
  });
}

/// One rank skips a unit, which the other begins to gather while the first reduces.
TEST(CallOrder, ARankThatSkipsAUnitIsTold) {
  run_ranks(2, [](world::World& world) {
    Experts net;
    auto sharded = fully_shard(net, world.group(), gathered(UnitCalls::kExplicit));
    EXPECT_THAT(
        refusal([&] {
          at::Tensor x = unit(net.left)(torch::ones({2, 4}));
          if (world.rank() == 1) x = unit(net.right)(x);
          x.sum().backward();
        }),
        AllOf(HasSubstr("different units"), HasSubstr("run the same units in the same order")));
  });
}

TEST(CallOrder, RanksInDifferentUnitsOfASecondaryShardAreTold) {
  run_ranks(4, [](world::World& world) {
    Experts net;
    auto options = gathered(UnitCalls::kExplicit);
    const int first = world.rank() / 2 * 2;
    options.reshard_after_forward_to = world.group().subgroup({first, first + 1}, "secondary");
    auto sharded = fully_shard(net, world.group(), options);
    EXPECT_THAT(refusal([&] {
                  const auto left = unit(net.left)(torch::ones({2, 4}));
                  const auto right = unit(net.right)(torch::ones({2, 4}));
                  (world.rank() % 2 == 0 ? left : right).sum().backward();
                }),
                AllOf(HasSubstr("different units"), HasSubstr("(left)"), HasSubstr("(right)")));
  });
}

TEST(CallOrder, UpdatesAndFullParametersDoNotMeet) {
  run_ranks(2, [](world::World& world) {
    Experts net;
    auto sharded = fully_shard(net, world.group(), {.calls = UnitCalls::kLens});
    EXPECT_THAT(refusal([&] {
                  if (world.rank() == 0) return sharded.step([] {});
                  const auto full = sharded.full_parameters();
                }),
                AllOf(HasSubstr("step()"), HasSubstr("full_parameters")));
  });
}

/// `use` of the first handle on rank 0 and of the second on rank 1.
template <class Make, class Use>
void expect_apart(const std::string& what, const Make& make, const Use& use) {
  run_ranks(2, [&](world::World& world) {
    Experts first, second;
    auto one = make(first, world.group());
    auto other = make(second, world.group());
    const bool is_one = world.rank() == 0;
    const std::string said = refusal([&] { is_one ? use(one, first) : use(other, second); });
    EXPECT_THAT(said, HasSubstr("every rank")) << what;
    EXPECT_THAT(said, HasSubstr("the tag is ")) << what;
  });
}

at::Tensor loss_of(Experts& net) { return net.right(net.left(torch::ones({2, 4}))).sum(); }

TEST(CallOrder, BackwardsOfTwoReplicasDoNotMeet) {
  const auto backward = [](Replicas& handle, Experts& net) {
    if (handle.grains().size() > 0) handle.grain(handle.grains().begin);
    loss_of(net).backward();
  };
  for (const DataParallelOptions& options :
       {DataParallelOptions{}, DataParallelOptions{.num_grains = 2},
        DataParallelOptions{.hook = bf16_hook()}, DataParallelOptions{.hook = top_k_hook(0.5)},
        DataParallelOptions{.hook = power_sgd_hook({.rank = 1})}}) {
    expect_apart(
        options.hook.name,
        [&](Experts& net, const comm::Group& group) { return data_parallel(net, group, options); },
        backward);
  }
}

TEST(CallOrder, JoinsOfTwoReplicasDoNotMeet) {
  expect_apart(
      "join",
      [](Experts& net, const comm::Group& group) {
        return data_parallel(net, group, {.average = Average::kSum});
      },
      [](Replicas& handle, Experts&) { handle.join(1); });
}

TEST(CallOrder, CallsOfTwoShardedHandlesDoNotMeet) {
  const auto make = [](Experts& net, const comm::Group& group) {
    return shard_optimizer(net, group);
  };
  expect_apart("step", make, [](Sharded& handle, Experts&) { handle.step([] {}); });
  expect_apart("backward", make, [](Sharded&, Experts& net) { loss_of(net).backward(); });
  expect_apart("norm", make, [](Sharded& handle, Experts&) { handle.clip_grad_norm(1); });
  expect_apart("values", make,
               [](Sharded& handle, Experts&) { (void)gather_values(handle, handle.parameters()); });
  expect_apart("full", make,
               [](Sharded& handle, Experts&) { const auto full = handle.full_parameters(); });
}

TEST(CallOrder, StepsOfTwoServersDoNotMeet) {
  expect_apart(
      "server", [](Experts& net, const comm::Group& group) { return parameter_server(net, group); },
      [](ParameterServer& handle, Experts& net) {
        loss_of(net).backward();
        handle.step(0.1);
      });
}

TEST(CallOrder, OverflowsOfTwoScalersDoNotMeet) {
  expect_apart(
      "scaler", [](Experts&, const comm::Group& group) { return LossScaler(group); },
      [](LossScaler& scaler, Experts& net) { scaler.unscale_of(net.parameters()); });
}

}  // namespace call_order
}  // namespace
}  // namespace hanji::parallel
