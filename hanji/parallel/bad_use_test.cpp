// Mistakes that every strategy refuses on all ranks, by the name of the parameter.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

namespace bad_use {

using test::run_ranks;
using test_net::mean_loss;
using test_net::Net;
using test_net::refusal;
using test_net::Values;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

/// Wraps a module; what it gives keeps the handle.
using Start = std::function<std::shared_ptr<void>(torch::nn::Module&, const comm::Group&)>;

template <class Handle>
std::shared_ptr<void> kept(Handle handle) {
  return std::make_shared<Handle>(std::move(handle));
}

Start fully_sharded(bool share_memory) {
  return [share_memory](auto& module, const auto& group) {
    FullyShardOptions options{.calls = UnitCalls::kLens};
    options.sharding.share_memory = share_memory;
    return kept(fully_shard(module, group, options));
  };
}

Start optimizer_sharded(WholeGradients whole) {
  return [whole](auto& module, const auto& group) {
    return kept(shard_optimizer(module, group, {.whole_gradients = whole}));
  };
}

const std::vector<std::pair<std::string, Start>>& strategies() {
  static const std::vector<std::pair<std::string, Start>> all = {
      {"data_parallel", [](auto& m, const auto& g) { return kept(data_parallel(m, g)); }},
      {"parameter_server", [](auto& m, const auto& g) { return kept(parameter_server(m, g)); }},
      {"zero1", optimizer_sharded(WholeGradients::kKept)},
      {"zero2", optimizer_sharded(WholeGradients::kFreed)},
      {"zero3", fully_sharded(true)},
      {"zero3 gathered", fully_sharded(false)}};
  return all;
}

at::Tensor rows_that_learn() { return test_net::rows(0, 0, 4).to(torch::kFloat).requires_grad_(); }

/// On rank 1 two parameters lie elsewhere; if `shapes`, others have other sizes there.
struct Odd : torch::nn::Module {
  Odd(int rank, bool shapes) {
    const auto device = rank == 1 ? torch::kMeta : torch::kCPU;
    register_parameter("here", torch::ones({3}));
    register_parameter("there", torch::ones({4}, at::TensorOptions(device)));
    register_parameter("elsewhere", torch::ones({5}, at::TensorOptions(device)));
    if (!shapes) return;
    register_parameter("wide", torch::ones({6 + rank}));
    register_parameter("deep", torch::ones({7, 1 + rank}));
  }
};

TEST(BadUse, DevicesThatDifferOnOneRankAreToldByAll) {
  run_ranks(2, [](world::World& world) {
    for (const auto& [name, start] : strategies()) {
      Odd odd(world.rank(), false);
      const std::string said = refusal([&] { start(odd, world.group()); });
      EXPECT_THAT(said, AllOf(HasSubstr("there"), HasSubstr("meta"), HasSubstr("elsewhere")))
          << name;
      EXPECT_EQ(said.starts_with("rank 1: "), world.rank() == 0) << name << ": " << said;
    }
  });
}

TEST(BadUse, EverythingThatIsWrongIsToldAtOnce) {
  run_ranks(3, [](world::World& world) {
    for (const auto& [name, start] : strategies()) {
      Odd odd(world.rank() == 1, true);
      const std::string said = refusal([&] { start(odd, world.group()); });
      EXPECT_THAT(said, AllOf(HasSubstr("wide"), HasSubstr("deep"), HasSubstr("ranks 1"))) << name;
      if (world.rank() != 1) continue;
      EXPECT_THAT(said, HasSubstr("elsewhere")) << name;
    }
  });
}

TEST(BadUse, ShardingOptionsOfOneRankAreToldByAll) {
  run_ranks(2, [](world::World& world) {
    const bool odd = world.rank() == 1;
    const auto said = [&](const ShardingOptions& options) {
      Net net(torch::kFloat);
      const auto group = world.group();
      const std::string fully = refusal(
          [&] { fully_shard(net, group, {.sharding = options, .calls = UnitCalls::kLens}); });
      return fully + refusal([&] { shard_optimizer(net, group, {.sharding = options}); });
    };
    for (const ShardingOptions& options :
         {ShardingOptions{.average = odd ? Average::kSum : Average::kMean},
          ShardingOptions{.share_memory = odd}, ShardingOptions{.max_units_in_flight = odd ? 0 : 2},
          ShardingOptions{.num_grains = odd ? 4 : 0},
          ShardingOptions{.offload = odd ? std::optional<ShardOffload>(ShardOffload{})
                                         : std::nullopt}}) {
      EXPECT_THAT(said(options), HasSubstr("the option sharding differs between ranks"));
    }
    EXPECT_EQ(said({}).substr(0, 8), "accepted");
  });
}

TEST(BadUse, AModuleHasOneHandleAtATime) {
  run_ranks(2, [](world::World& world) {
    for (const auto& [first, start] : strategies()) {
      for (const auto& [second, again] : strategies()) {
        Net net(torch::kFloat);
        auto handle = start(net, world.group());
        EXPECT_THAT(
            refusal([&] { again(net, world.group()); }),
            AllOf(HasSubstr("parameter tied"), HasSubstr("already"), HasSubstr("second.bias")))
            << first << ", then " << second;
        EXPECT_THAT(refusal([&] { again(*net.second, world.group()); }),
                    AllOf(HasSubstr("parameter weight"), HasSubstr("already")))
            << first << ", then a part by " << second;
        if (first == "zero3 gathered") continue;  // its memory ends with it
        handle.reset();
        EXPECT_EQ(refusal([&] { again(net, world.group()); }), "accepted")
            << first << ", its end, then " << second;
      }
    }
  });
}

/// Elements that collectives move and do not sum.
TEST(BadUse, ComplexParametersAreRefusedByName) {
  struct Spectrum : torch::nn::Module {
    at::Tensor plain = register_parameter("plain", torch::ones({3}));
    at::Tensor filter = register_parameter("filter", torch::ones({3}, torch::kComplexFloat));
    at::Tensor phase = register_parameter("phase", torch::ones({3}, torch::kComplexFloat));
  };
  run_ranks(2, [](world::World& world) {
    for (const auto& [name, start] : strategies()) {
      Spectrum net;
      EXPECT_THAT(refusal([&] { start(net, world.group()); }),
                  AllOf(HasSubstr("parameter filter is ComplexFloat"), HasSubstr("of phase"),
                        HasSubstr("at::view_as_real()")))
          << name;
      net.filter.set_requires_grad(false);
      net.phase.set_requires_grad(false);
      EXPECT_EQ(refusal([&] { start(net, world.group()); }), "accepted") << name;
    }
  });
}

TEST(BadUse, SparseParametersAreRefusedByName) {
  struct Table : torch::nn::Module {
    at::Tensor plain = register_parameter("plain", torch::ones({3}));
    at::Tensor table = register_parameter("table", torch::ones({3, 3}).to_sparse());
  };
  run_ranks(2, [](world::World& world) {
    for (const auto& [name, start] : strategies()) {
      Table net;
      EXPECT_THAT(refusal([&] { start(net, world.group()); }),
                  HasSubstr("parameter table is not dense"))
          << name;
    }
  });
}

/// Through `.grad`, and through the inner gradient of a penalty.
TEST(BadUse, GradientsOfGradientsAreRefusedWhereTheyWouldBeWrong) {
  run_ranks(2, [](world::World& world) {
    for (const auto& [name, start] : strategies()) {
      Net net(torch::kFloat);
      auto handle = start(net, world.group());
      const auto x = rows_that_learn();
      const bool serves = name == "parameter_server";  // `.grad` stays what backward has left
      EXPECT_THAT(refusal([&] { net.forward(x).sum().backward({}, true, true); }),
                  serves ? HasSubstr("accepted") : HasSubstr("create_graph"))
          << name;
      handle.reset();
      if (name == "zero3 gathered") continue;
      net.zero_grad();
      handle = start(net, world.group());
      const std::string said = refusal([&] {
        const auto inner =
            torch::autograd::grad({net.forward(x).sum()}, {x}, {}, {}, /*create_graph=*/true);
        inner[0].square().sum().backward();
      });
      EXPECT_THAT(said,
                  name == "zero3" ? HasSubstr("shard by shard_optimizer()") : HasSubstr("accepted"))
          << name;
    }
  });
}

/// Losses whose last operation saves tensors, and does not: torch, or a unit that was called, refuses.
TEST(BadUse, ASecondBackwardIsRefusedAndHarmsNothing) {
  run_ranks(2, [](world::World& world) {
    const auto labels = torch::zeros({4}, torch::kLong);
    for (const auto& [name, start] : strategies()) {
      Net net(torch::kFloat);
      const auto handle = start(net, world.group());
      const auto x = test_net::rows(0, 0, 4).to(torch::kFloat);
      for (int step = 0; step < 3; ++step) {
        const at::Tensor loss = step % 2 == 0 ? mean_loss(net, step, 0, 4)
                                              : torch::cross_entropy_loss(net.forward(x), labels);
        loss.backward();
        EXPECT_THAT(refusal([&] { loss.backward(); }),
                    AnyOf(HasSubstr("second time"), HasSubstr("ran twice")))
            << name;
      }
    }
  });
}

/// Trains by shards, and misuses whole parameters after each backward.
void step_beside(Net& net, Sharded& sharded, const std::function<void()>& between) {
  torch::optim::SGD optimizer(sharded.parameters(), torch::optim::SGDOptions(1e-2));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    mean_loss(net, step, 0, 4).backward();
    between();
    sharded.step(optimizer);
  }
}

Values trained_beside(const std::function<Sharded(Net&)>& shard,
                      const std::function<void(Net&)>& between) {
  Net net(torch::kDouble);
  auto sharded = shard(net);
  step_beside(net, sharded, [&] { between(net); });
  const auto full = sharded.full_parameters();
  return test_net::values_of(net);
}

std::vector<std::pair<std::string, std::function<Sharded(Net&)>>> sharders(
    const comm::Group& group) {
  const auto fully = [&group](bool share_memory) {
    return [&group, share_memory](Net& net) {
      FullyShardOptions options{.calls = UnitCalls::kLens};
      options.sharding.share_memory = share_memory;
      return fully_shard(net, group, options);
    };
  };
  const auto optimizer = [&group](WholeGradients whole) {
    return [&group, whole](Net& net) {
      return shard_optimizer(net, group, {.whole_gradients = whole});
    };
  };
  return {{"zero1", optimizer(WholeGradients::kKept)},
          {"zero2", optimizer(WholeGradients::kFreed)},
          {"zero3", fully(true)},
          {"zero3 gathered", fully(false)}};
}

TEST(BadUse, GradientsThatWentToTheShardsAreNotMissedInSilence) {
  run_ranks(2, [](world::World& world) {
    for (const auto& [name, shard] : sharders(world.group())) {
      const Values expected = trained_beside(shard, [](Net&) {});
      int num_hooked = 0;
      const Values own = trained_beside(shard, [&](Net& net) {
        net.tied.register_hook([&](const at::Tensor&) { ++num_hooked; });  // beside our own
        torch::optim::SGD early(net.parameters(), torch::optim::SGDOptions(1e-2));
        EXPECT_THAT(refusal([&] { early.step(); }),
                    AllOf(HasSubstr("parameter tied"), HasSubstr("the handle's parameters()")))
            << name;
        EXPECT_THAT(refusal([&] { torch::nn::utils::clip_grad_norm_(net.parameters(), 1.0); }),
                    AllOf(HasSubstr("gradient of parameter tied"), HasSubstr("clip_grad_norm()")))
            << name;
        net.zero_grad();
        for (const auto& p : net.parameters()) EXPECT_FALSE(p.grad().defined());
      });
      EXPECT_TRUE(test_net::same_bits(own, expected)) << name;
      EXPECT_EQ(num_hooked, 0 + 1 + 2) << name;
    }
  });
}

TEST(BadUse, ALossThatIsAParameterHasNoSecondBackward) {
  run_ranks(2, [](world::World& world) {
    struct One : torch::nn::Module {
      at::Tensor p = register_parameter("p", torch::ones({}));
    } one;
    auto sharded = shard_optimizer(one, world.group());
    for (int i = 1; i <= 3; ++i) {
      one.p.backward();
      EXPECT_EQ(test_net::flat_gradients(sharded).sum().item<float>(),
                sharded.parameters().empty() ? 0 : i);
    }
  });
}

TEST(BadUse, WithoutItsHandleAParameterHasOrdinaryGradients) {
  run_ranks(2, [](world::World& world) {
    Net net(torch::kDouble);
    {
      auto sharded = shard_optimizer(net, world.group());
      mean_loss(net, 0, 0, 4).backward();
      EXPECT_TRUE(net.tied.grad().defined());
    }
    EXPECT_FALSE(net.tied.grad().defined());
    mean_loss(net, 0, 0, 4).backward();
    mean_loss(net, 0, 0, 4).backward();
    EXPECT_GT(net.tied.grad().abs().max().item<double>(), 0);
  });
}

TEST(BadUse, AnOptimizerMadeBeforeShardingIsNamed) {
  run_ranks(2, [](world::World& world) {
    for (const bool whole : {false, true}) {
      Net net(torch::kFloat);
      torch::optim::AdamW early(net.parameters(), 1e-2);
      auto sharded = whole ? fully_shard(net, world.group(), {.calls = UnitCalls::kLens})
                           : shard_optimizer(net, world.group());
      EXPECT_THAT(refusal([&] { sharded.step(early); }),
                  AllOf(HasSubstr("whole parameter tied"), HasSubstr("before sharding")));
    }
  });
}

}  // namespace bad_use
}  // namespace
}  // namespace hanji::parallel
