// What gives parameters other memory, or writes to them, under every handle: compared with one process
// that does the same, or refused by the name of the parameter.
#include <gmock/gmock.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hanji/comm/barrier.h"
#include "hanji/comm/heap.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/shard_optimizer.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/master_weights.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

namespace replaced_memory {

using test::run_ranks;
using test_net::distinct;
using test_net::kTolerance;
using test_net::largest_difference;
using test_net::mean_loss;
using test_net::Net;
using test_net::refusal;
using test_net::Values;
using test_net::values_of;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kRate = 0.1;
constexpr int64_t kRows = 12;

using Change = std::function<void(Net&)>;
using Changes = std::vector<std::pair<std::string, Change>>;

std::string saved() {
  Net other(torch::kDouble, 7);
  torch::serialize::OutputArchive archive;
  other.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void load_by_torch(Net& net) {
  static const std::string kFile = saved();
  std::istringstream stream(kFile);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  net.load(archive);
}

void halve_vector(Net& net) {
  const auto vector = torch::nn::utils::parameters_to_vector(net.parameters());
  torch::nn::utils::vector_to_parameters(vector.detach() * 0.5, net.parameters());
}

/// Each leaves parameters of the same sizes and dtype, in memory of its own.
const Changes& replacements() {
  static const Changes all = {
      {"torch::load", load_by_torch},
      {"vector_to_parameters", halve_vector},
      {"set_data", [](Net& net) { net.tied.set_data(net.tied.detach() * 0.5); }},
      {"set_data of other strides",
       [](Net& net) {
         const at::Tensor weight = net.second->weight;
         weight.set_data((weight.detach() * 0.5).t().contiguous().t());
       }},
      {"set_",
       [](Net& net) {
         const torch::NoGradGuard no_grad;
         const at::Tensor half = net.second->bias * 0.5;
         net.second->bias.set_(half);
       }},
      {"two changes", [](Net& net) {
         net.tied.set_data(net.tied.detach() * 0.5);
         const torch::NoGradGuard no_grad;
         net.tied.add_(0.25);
         net.first->bias.add_(0.25);
       }}};
  return all;
}

/// In the memory that is there.
const Changes& writes() {
  static const Changes all = {{"mul_",
                               [](Net& net) {
                                 const torch::NoGradGuard no_grad;
                                 for (auto& p : distinct(net)) p.mul_(0.5);
                               }},
                              {"of a view", [](Net& net) {
                                 const torch::NoGradGuard no_grad;
                                 net.tied.view({-1}).slice(0, 0, 2000).add_(1);
                               }}};
  return all;
}

/// Through data(), which counts no versions.
void write_unseen(Net& net) {
  for (auto& p : distinct(net)) p.data().mul_(0.5);
}

Values train_alone(const Change& change) {
  Net net(torch::kDouble);
  for (int step = 0; step < 3; ++step) {
    if (step == 1) change(net);
    torch::optim::SGD optimizer(distinct(net), kRate);
    optimizer.zero_grad();
    mean_loss(net, step, 0, kRows).backward();
    optimizer.step();
  }
  return values_of(net);
}

/// A handle to a module, and what its strategy calls a step and a scope of whole parameters.
struct Trainer {
  std::shared_ptr<void> handle;
  std::function<void()> step;
  std::function<void(const std::function<void()>&)> within_full = [](const auto& body) { body(); };
};

Trainer trainer_of(Sharded made) {
  const auto sharded = std::make_shared<Sharded>(std::move(made));
  const auto optimizer = std::make_shared<torch::optim::SGD>(sharded->parameters(), kRate);
  return {sharded,
          [sharded, optimizer] {
            sharded->step(*optimizer);
            optimizer->zero_grad();
          },
          [sharded](const auto& body) {
            const auto full = sharded->full_parameters();
            body();
          }};
}

Trainer replicated(Net& net, const comm::Group& group) {
  const auto replicas = std::make_shared<Replicas>(data_parallel(net, group));
  return {replicas, [&net, replicas] {
            torch::optim::SGD(distinct(net), kRate).step();
            net.zero_grad();
          }};
}

Trainer served(Net& net, const comm::Group& group) {
  ParameterServerOptions options{.rule = decay_matrices(0)};
  options.make_optimizer = [](FlatPart part, const SumOverParts&) {
    return flat_sgd(std::move(part));
  };
  const auto server = std::make_shared<ParameterServer>(parameter_server(net, group, options));
  return {server, [&net, server] {
            server->step(kRate);
            net.zero_grad();
          }};
}

struct Kind {
  std::string name;
  std::function<Trainer(Net&, const comm::Group&)> wrap;
};

Kind fully(const std::string& name, bool share) {
  return {name, [share](Net& net, const comm::Group& group) {
            FullyShardOptions options{.calls = UnitCalls::kLens};
            options.sharding.share_memory = share;
            return trainer_of(fully_shard(net, group, options));
          }};
}

Kind by_optimizer(const std::string& name, WholeGradients whole, bool share) {
  return {name, [whole, share](Net& net, const comm::Group& group) {
            ShardOptimizerOptions options{.whole_gradients = whole, .unit_bytes = 20000};
            options.sharding.share_memory = share;
            return trainer_of(shard_optimizer(net, group, options));
          }};
}

const std::vector<Kind>& unsharded_kinds() {
  static const std::vector<Kind> all = {{"data_parallel", replicated}, {"server", served}};
  return all;
}
const std::vector<Kind>& optimizer_kinds() {
  static const std::vector<Kind> all = {by_optimizer("zero1", WholeGradients::kKept, true),
                                        by_optimizer("zero2", WholeGradients::kFreed, true),
                                        by_optimizer("zero1 apart", WholeGradients::kKept, false)};
  return all;
}
const std::vector<Kind>& parameter_kinds() {
  static const std::vector<Kind> all = {fully("zero3", true), fully("zero3 gathered", false)};
  return all;
}

std::vector<Kind> joined_kinds(std::initializer_list<const std::vector<Kind>*> lists) {
  std::vector<Kind> all;
  for (const auto* list : lists) all.insert(all.end(), list->begin(), list->end());
  return all;
}

void backward(Net& net, int step, const comm::Group& group) {
  const int64_t rows = kRows / group.size();
  mean_loss(net, step, group.rank() * rows, (group.rank() + 1) * rows).backward();
}

Values whole_values(Net& net, const Trainer& trainer) {
  Values values;
  trainer.within_full([&] { values = values_of(net); });
  return values;
}

/// Three steps, with the change between the first two, by every rank.
Values train(const Kind& kind, const comm::Group& group, const Change& change, bool in_scope) {
  Net net(torch::kDouble);
  Trainer trainer = kind.wrap(net, group);
  for (int step = 0; step < 3; ++step) {
    if (step == 1 && in_scope) trainer.within_full([&] { change(net); });
    if (step == 1 && !in_scope) change(net);
    backward(net, step, group);
    trainer.step();
  }
  return whole_values(net, trainer);
}

void expect_as_alone(const std::vector<Kind>& kinds, const Changes& changes, bool in_scope) {
  for (const auto& [name, change] : changes) {
    const Values expected = train_alone(change);
    run_ranks(2, [&, &name = name, &change = change](world::World& world) {
      for (const Kind& kind : kinds) {
        const Values own = train(kind, world.group(), change, in_scope);
        EXPECT_LT(largest_difference(own, expected), kTolerance) << kind.name << ", " << name;
      }
    });
  }
}

TEST(ReplacedMemory, WithinAScopeIsTakenFromEveryRankOnce) {
  const auto kinds = joined_kinds({&unsharded_kinds(), &optimizer_kinds(), &parameter_kinds()});
  expect_as_alone(kinds, replacements(), true);
  expect_as_alone(kinds, writes(), true);
  expect_as_alone(kinds, {{"data()", write_unseen}}, true);
}

TEST(ReplacedMemory, BetweenStepsIsTakenWhereParametersAreWhole) {
  Changes changes = replacements();
  changes.pop_back();  // which writes to what others share, too
  changes.emplace_back("a write to what was replaced", [](Net& net) {
    load_by_torch(net);
    const torch::NoGradGuard no_grad;
    net.tied.mul_(0.5);
  });
  expect_as_alone(joined_kinds({&unsharded_kinds(), &optimizer_kinds()}), changes, false);
  auto own_memory = unsharded_kinds();
  own_memory.push_back(optimizer_kinds().back());
  expect_as_alone(own_memory, writes(), false);
}

TEST(ReplacedMemory, OfAScopeBehindIsTakenToo) {
  const Values expected = train_alone(halve_vector);
  run_ranks(2, [&](world::World& world) {
    for (const Kind& kind : optimizer_kinds()) {
      Net net(torch::kDouble);
      Trainer trainer = kind.wrap(net, world.group());
      for (int step = 0; step < 3; ++step) {
        if (step == 1) halve_vector(net);
        if (step == 1) trainer.within_full([] {});  // to look at it
        backward(net, step, world.group());
        trainer.step();
      }
      EXPECT_LT(largest_difference(values_of(net), expected), kTolerance) << kind.name;
    }
  });
}

TEST(ReplacedMemory, OutsideAScopeIsRefusedWhereParametersAreSharded) {
  for (const Kind& kind : parameter_kinds()) {
    run_ranks(2, [&](world::World& world) {
      Net net(torch::kDouble);
      Trainer trainer = kind.wrap(net, world.group());
      backward(net, 0, world.group());
      trainer.step();
      EXPECT_THAT(refusal([&] { load_by_torch(net); }),
                  AllOf(HasSubstr("parameter tied is sharded"), HasSubstr("full_parameters()")));
      for (auto& p : distinct(net)) p.set_data(torch::ones(p.sizes(), torch::kDouble));
      const auto named = AllOf(HasSubstr("tied"), HasSubstr("outside of full_parameters()"));
      EXPECT_THAT(refusal([&] { backward(net, 1, world.group()); }), named) << kind.name;
      EXPECT_THAT(refusal([&] { trainer.step(); }), named) << kind.name;
      EXPECT_THAT(refusal([&] { trainer.within_full([] {}); }), named) << kind.name;
    });
  }
}

TEST(ReplacedMemory, OfACalledUnitIsRefusedInItsForward) {
  run_ranks(2, [](world::World& world) {
    for (const bool share : {true, false}) {
      torch::nn::Linear net(3, 4);
      auto sharded = fully_shard(*net, world.group(), {.sharding = {.share_memory = share}});
      const at::Tensor x = torch::ones({2, 3});
      (void)unit(net)(x);
      for (auto& p : net->parameters()) p.set_data(torch::ones(p.sizes()));
      EXPECT_THAT(refusal([&] { (void)unit(net)(x); }),
                  HasSubstr("the memory of parameters weight, bias"));
    }
  });
}

TEST(ReplacedMemory, WritesToTheHostsOneCopyOutsideAScopeAreRefused) {
  for (const Kind& kind : {optimizer_kinds()[0], optimizer_kinds()[1]}) {
    for (const auto& [name, change] : writes()) {
      run_ranks(2, [&, &name = name, &change = change](world::World& world) {
        Net net(torch::kDouble);
        Trainer trainer = kind.wrap(net, world.group());
        backward(net, 0, world.group());
        trainer.step();
        change(net);
        const auto named = AllOf(HasSubstr("parameter tied"), HasSubstr("full_parameters()"));
        EXPECT_THAT(refusal([&] { backward(net, 1, world.group()); }), named) << kind.name << name;
        EXPECT_THAT(refusal([&] { trainer.step(); }), named) << kind.name << name;
        EXPECT_THAT(refusal([&] { trainer.within_full([] {}); }), named) << kind.name << name;
      });
    }
  }
}

TEST(ReplacedMemory, AnotherDtypeOrSizeIsRefusedByName) {
  const Changes changes = {{"to", [](Net& net) { net.to(torch::kFloat); }},
                           {"set_data", [](Net& net) {
                              net.tied.set_data(torch::zeros({4, 3}, torch::kDouble));
                            }}};
  const auto named =
      AllOf(HasSubstr("parameter tied is"), HasSubstr("now and was Double [1501, 3]"));
  for (const auto& [name, change] : changes) {
    for (const Kind& kind : joined_kinds({&optimizer_kinds(), &parameter_kinds()})) {
      run_ranks(2, [&, &change = change, &name = name](world::World& world) {
        Net net(torch::kDouble);
        Trainer trainer = kind.wrap(net, world.group());
        EXPECT_THAT(refusal([&] { trainer.within_full([&] { change(net); }); }), named)
            << kind.name << ", " << name;
        EXPECT_THAT(refusal([&] { trainer.step(); }), named) << kind.name << ", " << name;
      });
    }
    run_ranks(2, [&, &change = change](world::World& world) {
      Net net(torch::kDouble);
      Trainer trainer = served(net, world.group());
      change(net);
      EXPECT_THAT(refusal([&] { trainer.step(); }),
                  AllOf(HasSubstr("parameter tied is"), HasSubstr("was Double [1501 3]")));
    });
  }
}

TEST(ReplacedMemory, OfAnotherSizeIsRefusedByReplicasToo) {
  run_ranks(2, [](world::World& world) {
    torch::nn::Linear net(3, 4);
    const auto replicas = data_parallel(*net, world.group());
    net->bias.set_data(torch::zeros({1}));  // which broadcasts
    EXPECT_THAT(refusal([&] {
                  net(torch::ones({2, 3})).sum().backward();
                }),
                AllOf(HasSubstr("parameter bias is Float [1]"), HasSubstr("was Float [4]")));
  });
}

TEST(ReplacedMemory, OfShardsIsTakenBeforeAndInAnUpdate) {
  run_ranks(2, [](world::World& world) {
    for (const bool share : {true, false}) {
      Net net(torch::kDouble);
      const Values before = values_of(net);
      auto sharded = shard_optimizer(net, world.group(), {.sharding = {.share_memory = share}});
      const auto halve = [&] {
        for (const auto& shard : sharded.parameters()) shard.set_data(shard.detach() * 0.5);
      };
      halve();
      sharded.step(halve);
      for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_TRUE(at::equal(values_of(net)[i], before[i] * 0.25));
      }
      sharded.parameters()[0].set_data(torch::zeros({1}));
      EXPECT_THAT(refusal([&] { sharded.step([] {}); }), HasSubstr("the shard of"));
    }
  });
}

TEST(ReplacedMemory, MastersOfAMixedUnitAreWrittenByEveryRankOnce) {
  run_ranks(2, [](world::World& world) {
    for (const bool share : {true, false}) {
      Net net(torch::kFloat);
      const Values before = values_of(net);
      FullyShardOptions options{.calls = UnitCalls::kLens};
      options.sharding.share_memory = share;
      options.sharding.precision.param_dtype = torch::kBFloat16;
      auto sharded = fully_shard(net, world.group(), options);
      {
        const auto full = sharded.full_parameters();
        const torch::NoGradGuard no_grad;
        net.tied.mul_(0.5);
        net.first->bias.set_data(net.first->bias.detach() * 0.5);
      }
      const auto full = sharded.full_parameters();
      EXPECT_TRUE(at::equal(net.tied, before[0] * 0.5));
      EXPECT_TRUE(at::equal(net.first->bias, before[1] * 0.5));
      EXPECT_TRUE(at::equal(net.second->weight, before[2]));
    }
  });
}

TEST(ReplacedMemory, HybridShardsTakeItInEveryGroup) {
  const Values expected = train_alone(halve_vector);
  run_ranks(4, [&](world::World& world) {
    const auto mesh = world.mesh({{"dp", 2}, {"fsdp", 2}});
    Net net(torch::kDouble);
    FullyShardOptions options{.strategy = ShardingStrategy::kHybridShard,
                              .calls = UnitCalls::kLens};
    options.sharding.replicas = mesh["dp"];
    Trainer trainer = trainer_of(fully_shard(net, mesh["fsdp"], options));
    for (int step = 0; step < 3; ++step) {
      if (step == 1) trainer.within_full([&] { halve_vector(net); });
      backward(net, step, world.group());
      trainer.step();
    }
    EXPECT_LT(largest_difference(whole_values(net, trainer), expected), kTolerance);
  });
}

TEST(ReplacedMemory, ScopesWithinAScopeAreOne) {
  run_ranks(2, [](world::World& world) {
    for (const Kind& kind : parameter_kinds()) {
      Net net(torch::kDouble);
      const Values before = values_of(net);
      Trainer trainer = kind.wrap(net, world.group());
      trainer.within_full([&] {
        trainer.within_full([&] {
          const torch::NoGradGuard no_grad;
          net.tied.mul_(0.5);
        });
        EXPECT_TRUE(at::equal(net.tied, before[0] * 0.5)) << kind.name;
      });
      EXPECT_TRUE(at::equal(whole_values(net, trainer)[0], before[0] * 0.5)) << kind.name;
    }
  });
}

/// Of what lies whole, once the handle has ended.
TEST(ReplacedMemory, AfterItsHandleAModuleIsOneRanksOwn) {
  auto kinds = joined_kinds({&unsharded_kinds(), &optimizer_kinds()});
  kinds.push_back(parameter_kinds()[0]);
  for (const Kind& kind : kinds) {
    std::vector<std::unique_ptr<Net>> nets;
    for (int rank = 0; rank < 2; ++rank) nets.push_back(std::make_unique<Net>(torch::kDouble));
    std::vector<at::Tensor> shard(2);
    run_ranks(2, [&](world::World& world) {
      Net& net = *nets[world.rank()];
      Trainer trainer = kind.wrap(net, world.group());
      backward(net, 0, world.group());
      trainer.step();
      trainer = {};
      const Values before = values_of(net);
      comm::barrier(world.group());
      if (world.rank() == 0) write_unseen(net);
      comm::barrier(world.group());
      if (world.rank() == 0) return;
      EXPECT_TRUE(test_net::same_bits(values_of(net), before)) << kind.name;
    });
    const Values before = values_of(*nets[0]);
    torch::optim::SGD optimizer(nets[1]->parameters(), 1);
    nets[1]->zero_grad();
    mean_loss(*nets[1], 0, 0, 4).backward();
    optimizer.step();
    EXPECT_TRUE(test_net::same_bits(values_of(*nets[0]), before)) << kind.name;
  }
}

TEST(ReplacedMemory, AHandleMayOutliveItsWorld) {
  for (const Kind& kind : {optimizer_kinds()[0], parameter_kinds()[0]}) {
    std::vector<std::unique_ptr<Net>> nets;
    for (int rank = 0; rank < 2; ++rank) nets.push_back(std::make_unique<Net>(torch::kDouble));
    const Values before = values_of(*nets[0]);
    std::vector<Trainer> trainers(2);
    run_ranks(2, [&](world::World& world) {
      trainers[world.rank()] = kind.wrap(*nets[world.rank()], world.group());
    });
    trainers.clear();
    EXPECT_TRUE(test_net::same_bits(values_of(*nets[0]), before)) << kind.name;
    write_unseen(*nets[1]);
    EXPECT_TRUE(test_net::same_bits(values_of(*nets[0]), before)) << kind.name;
  }
}

TEST(ReplacedMemory, AnOptimizerOfShardsThatOutlivesItsHandleWritesToItsRankOnly) {
  run_ranks(2, [](world::World& world) {
    Net net(torch::kDouble);
    std::vector<at::Tensor> shards;
    {
      auto sharded = shard_optimizer(net, world.group());
      shards = sharded.parameters();
      comm::barrier(world.group());
    }
    const Values before = values_of(net);
    comm::barrier(world.group());
    if (world.rank() == 0) {
      for (at::Tensor& shard : shards) shard.data().mul_(0.5);
    }
    comm::barrier(world.group());
    EXPECT_EQ(test_net::same_bits(values_of(net), before), world.rank() == 1);
  });
}

TEST(ReplacedMemory, IsLookedForWithoutMemory) {
  run_ranks(2, [](world::World& world) {
    for (const Kind& kind : joined_kinds({&optimizer_kinds(), &parameter_kinds()})) {
      Net net(torch::kDouble);
      Trainer trainer = kind.wrap(net, world.group());
      size_t peak = 0;
      for (int step = 0; step < 4; ++step) {
        backward(net, step, world.group());
        trainer.step();
        if (step == 1) peak = world.heap().peak_bytes();
      }
      EXPECT_EQ(world.heap().peak_bytes(), peak) << kind.name;
    }
  });
}

TEST(ReplacedMemory, OfMasterWeightsIsRefusedByName) {
  run_ranks(2, [](world::World& world) {
    Net net(torch::kFloat);
    MasterWeights masters(net, world.group());
    masters.publish();
    net.to(torch::kFloat);
    EXPECT_THAT(refusal([&] { masters.publish(); }),
                AllOf(HasSubstr("tied"), HasSubstr("values()")));
  });
}

TEST(ReplacedMemory, OfServersThatAreNoWorkersIsRefusedByName) {
  for (const Change& change : {Change(halve_vector), writes()[0].second}) {
    run_ranks(2, [&](world::World& world) {
      Net net(torch::kDouble);
      auto server = parameter_server(net, world.group(), {.servers = {0}, .workers = {1}});
      change(net);
      EXPECT_THAT(refusal([&] { server.step(kRate); }), HasSubstr("parameter tied"));
    });
  }
}

}  // namespace replaced_memory
}  // namespace
}  // namespace hanji::parallel
