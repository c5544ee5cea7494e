// The layers of a model as units of fully_shard().
#include <gmock/gmock.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "hanji/layers/model.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/fsdp/whole_values.h"
#include "hanji/parallel/recompute.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

using layers::Batch;
using layers::Flow;
using test::run_ranks;
using test_net::refusal;
using test_net::same_bits;
using test_net::Values;
using testing::HasSubstr;

constexpr int64_t kBlocks = 3;

/// Blocks between a table and the same table again, the last of them behind a layer without
/// parameters; one parameter that no layer reads.
class Layered : public layers::Model {
 public:
  Layered() : Model("Layered") {
    table_ = register_parameter("table", torch::zeros({24, 3}));
    for (int64_t i = 0; i < kBlocks; ++i) {
      blocks_.push_back(register_parameter("block" + std::to_string(i), torch::zeros({24, 24})));
    }
    register_parameter("unread", torch::zeros({5}));
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      p.copy_((torch::arange(p.numel()) + 1).sin().view(p.sizes()) * 0.2);
    }
  }

  int64_t num_layers() const override { return kBlocks + 3; }
  Flow layer(int64_t index, Flow flow, const Batch& batch) override {
    if (index == 0) return {batch.inputs.mm(table_.t())};
    if (index == num_layers() - 1) return {flow[0].mm(table_)};
    if (index == kBlocks) return {torch::tanh(flow[0])};
    const int64_t block = index < kBlocks ? index - 1 : kBlocks - 1;
    return {flow[0] + torch::tanh(flow[0].mm(blocks_[strays ? kBlocks - 1 : block]))};
  }
  std::vector<at::Tensor> layer_parameters(int64_t index) const override {
    if (index == 0 || index == num_layers() - 1) return {table_};
    if (index == kBlocks) return {};
    return {blocks_[index < kBlocks ? index - 1 : kBlocks - 1]};
  }
  layers::LossSum loss(Flow flow, const Batch& batch) override {
    return {flow[0].square().sum(), batch.num_valid};
  }

  bool strays = false;  ///< Blocks read the last one's parameter.

 private:
  at::Tensor table_;
  std::vector<at::Tensor> blocks_;
};

Batch batch_of(int step, const world::World& world) {
  return {.inputs = test_net::rows(step, 3 * world.rank(), 3 * world.rank() + 3).to(torch::kFloat),
          .num_valid = 3};
}

Values values_of(const Layered& model) {
  Values values;
  for (const auto& p : model.parameters()) values.push_back(p.detach().clone());
  return values;
}

std::vector<layers::LayerScope> scopes_of(const Layered& model, bool recomputes) {
  if (!recomputes) return {unit_scope(model)};
  return {recompute({1, kBlocks + 2}), unit_scope(model)};
}

constexpr int kLayeredSteps = 8;

Values replicated(const world::World& world) {
  Layered model;
  const auto replicas = data_parallel(model, world.group());
  torch::optim::AdamW optimizer(model.parameters(), 1e-2);
  for (int step = 0; step < kLayeredSteps; ++step) {
    optimizer.zero_grad();
    model.loss_sum(batch_of(step, world)).sum.backward();
    optimizer.step();
  }
  return values_of(model);
}

FullyShardOptions layers_as_units(bool share_memory) {
  FullyShardOptions options{.calls = UnitCalls::kLayers};
  options.sharding.share_memory = share_memory;
  return options;
}

struct LayeredCase {
  const char* name;
  int ranks = 2;
  bool share_memory = true;
  bool recomputes = false;
};

class LayeredUnits : public testing::TestWithParam<LayeredCase> {};

TEST_P(LayeredUnits, StepsHaveTheBitsOfReplicas) {
  const LayeredCase of = GetParam();
  run_ranks(of.ranks, [&](world::World& world) {
    const Values expected = replicated(world);
    Layered model;
    const auto scopes = scopes_of(model, of.recomputes);
    auto sharded = fully_shard(model, world.group(), layers_as_units(of.share_memory));
    torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
    for (int step = 0; step < kLayeredSteps; ++step) {
      sharded.zero_grad();
      {
        const auto only_adds = sharded.accumulate();
        (model.loss_sum(batch_of(step, world), scopes).sum * 0).backward();
      }
      model.loss_sum(batch_of(step, world), scopes).sum.backward();
      sharded.step(optimizer);
    }
    const auto full = sharded.full_parameters();
    EXPECT_TRUE(same_bits(values_of(model), expected));
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, LayeredUnits,
                         testing::Values(LayeredCase{"shared2", 2}, LayeredCase{"shared3", 3},
                                         LayeredCase{"gathered2", 2, false},
                                         LayeredCase{"gathered3", 3, false},
                                         LayeredCase{"recomputed", 2, true, true},
                                         LayeredCase{"gathered_recomputed", 3, false, true}),
                         [](const auto& info) { return info.param.name; });

TEST(LayeredUnits, ATiedWeightStaysGatheredFromItsFirstForwardToItsBackward) {
  run_ranks(2, [](world::World& world) {
    Layered model;
    const auto sharded = fully_shard(model, world.group(), layers_as_units(false));
    const auto gathered_by = [&](const auto& body) {
      const int64_t before = world.group().stats().operations;
      body();
      return world.group().stats().operations - before;
    };
    layers::LossSum loss;
    EXPECT_EQ(gathered_by([&] { loss = model.loss_sum(batch_of(0, world), {unit_scope(model)}); }),
              1 + kBlocks);
    const int64_t reduced = 1 + kBlocks, used = 1;
    EXPECT_EQ(gathered_by([&] { loss.sum.backward(); }), kBlocks + reduced + used);
  });
}

TEST(LayeredUnits, ALayerThatReadsAnotherOnesParameterThrows) {
  run_ranks(2, [](world::World& world) {
    for (const bool share : {true, false}) {
      Layered model;
      const auto sharded = fully_shard(model, world.group(), layers_as_units(share));
      model.strays = true;
      const std::string why = refusal([&] {
        const torch::NoGradGuard no_grad;
        model.forward({0, 2}, {}, batch_of(0, world), {unit_scope(model)});
      });
      EXPECT_THAT(why, HasSubstr("parameter block2 is sharded, and its unit layer 4"));
    }
  });
}

TEST(LayeredUnits, WholeParametersCanBeReadBetweenStepsWhereTheyLieOnce) {
  run_ranks(2, [](world::World& world) {
    Layered model;
    const Values first = values_of(model);
    auto sharded = fully_shard(model, world.group(), layers_as_units(true));
    EXPECT_THAT(refusal([&] { values_of(model); }), HasSubstr("parameter table is sharded"));
    Values found;
    for (const char* name : {"table", "block0", "block1", "block2", "unread"}) {
      for (const auto& [whole, tensor] : whole_parameters(sharded)) {
        if (whole == name) found.push_back(tensor);
      }
    }
    EXPECT_TRUE(same_bits(found, first));
    Layered apart;
    const auto gathered = fully_shard(apart, world.group(), layers_as_units(false));
    EXPECT_THAT(refusal([&] { whole_parameters(gathered); }), HasSubstr("full_parameters()"));
  });
}

TEST(LayeredUnits, AModuleWithoutLayersIsRefusedAndSoIsAPolicy) {
  run_ranks(1, [](world::World& world) {
    test_net::Net net(torch::kFloat);
    EXPECT_THAT(refusal([&] { fully_shard(net, world.group(), layers_as_units(true)); }),
                HasSubstr("needs a hanji::layers::Model"));
    Layered model;
    FullyShardOptions options = layers_as_units(true);
    options.units = units_of_size(1);
    EXPECT_THAT(refusal([&] { fully_shard(model, world.group(), options); }),
                HasSubstr("takes no policy"));
  });
}

}  // namespace
}  // namespace hanji::parallel
