// Mistakes that every strategy refuses on all ranks, by the name of the parameter.
#include <gmock/gmock.h>

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
using testing::AllOf;
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
      if (world.rank() == 1) EXPECT_THAT(said, HasSubstr("elsewhere")) << name;
    }
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

TEST(BadUse, ASecondBackwardNamesAParameterAndHarmsNothing) {
  run_ranks(2, [](world::World& world) {
    for (const auto& [name, start] : strategies()) {
      Net net(torch::kFloat);
      const auto handle = start(net, world.group());
      for (int step = 0; step < 2; ++step) {
        const at::Tensor loss = mean_loss(net, step, 0, 4);
        loss.backward();
        EXPECT_THAT(refusal([&] { loss.backward(); }),
                    AllOf(HasSubstr("second time"), HasSubstr("parameter ")))
            << name;
      }
    }
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
