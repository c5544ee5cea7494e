// Checkpointed functions whose blocks are units of fully_shard(), called by name or found by the lens.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hanji/compute/dropout.h"
#include "hanji/parallel/checkpoint_budget.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel {
namespace {

/// A block that is a unit; what shifts it is all blocks' and the root's.
struct Part : torch::nn::Module {
  explicit Part(const at::Tensor& shared) : shift(register_parameter("shift", shared)) {}
  at::Tensor forward(const at::Tensor& x, const std::function<at::Tensor(at::Tensor)>& drop) {
    return x + second(drop(torch::tanh(first(x) + shift)));
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(10, 43));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(43, 10));
  at::Tensor shift;
};

enum class Form { kPlain, kEach, kKeeping, kChosen, kAll };

/// Three blocks, the second of which is called twice.
struct PartChain : torch::nn::Module {
  PartChain() {
    const at::Tensor shift = torch::zeros({43});
    for (int i = 0; i < 3; ++i) {
      parts.push_back(register_module("part" + std::to_string(i), std::make_shared<Part>(shift)));
    }
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(torch::arange(p.numel()).add(1).sin().view(p.sizes()));
  }

  at::Tensor call(size_t layer, const at::Tensor& x) {
    const auto part = parts[layer % 3];
    const auto forward = [this, layer, part](const at::Tensor& in) {
      return part->forward(in, [&](const at::Tensor& inner) {
        // Ranks that are threads have torch's generator in common.
        if (torchs_dropout) return torch::dropout(inner, .3, true);
        return compute::dropout(inner, .3, {7, step, sample, static_cast<int64_t>(layer)});
      });
    };
    if (!by_unit) return forward(x);
    UnitCall unit_call(*part);
    const at::Tensor y = forward(x);
    unit_call.leave({y});
    return y;
  }

  at::Tensor forward(at::Tensor x) {
    if (form == Form::kAll) {
      return checkpointed(
          [this](at::Tensor in) {
            for (size_t i = 0; i < 4; ++i) in = call(i, in);
            return in;
          },
          x);
    }
    for (size_t i = 0; i < 4; ++i) {
      const auto fn = [this, i](const at::Tensor& in) { return call(i, in); };
      if (form == Form::kPlain) x = fn(x);
      if (form == Form::kEach) x = checkpointed(fn, x);
      if (form == Form::kKeeping) x = checkpointed_keeping(lens::keep_products(), fn, x);
      if (form == Form::kChosen) x = chosen.call(i, fn, x);
    }
    return x;
  }

  Form form = Form::kPlain;
  Checkpoints chosen{{.recomputed = {true, false, true, true}}};
  bool by_unit = false, torchs_dropout = false;
  int64_t step = 0, sample = 0;
  std::vector<std::shared_ptr<Part>> parts;
};

struct ChainTraining {
  /// Gradients of this rank's shards after each step, and the parameters after the last.
  std::vector<at::Tensor> values;
  int64_t num_collectives = 0;  ///< Of the last backward.
};

ChainTraining train_chain(const world::World& world, Form form, UnitCalls calls,
                          bool share_memory) {
  if (world.size() == 1) torch::manual_seed(3);
  PartChain net;
  net.form = form;
  net.by_unit = calls == UnitCalls::kExplicit;
  net.torchs_dropout = world.size() == 1;
  net.sample = 4 * world.rank();
  FullyShardOptions options{.calls = calls, .units = units_of_type<Part>()};
  options.sharding.share_memory = share_memory;
  auto sharded = fully_shard(net, world.group(), options);
  torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
  ChainTraining found;
  const at::Tensor x = torch::arange(40, torch::kFloat).add(world.rank()).cos().view({4, 10});
  for (net.step = 0; net.step < 3; ++net.step) {
    optimizer.zero_grad();
    const at::Tensor loss = (net.by_unit ? unit(net)(x) : net.forward(x)).square().sum();
    const int64_t before = world.group().stats().operations;
    loss.backward();
    found.num_collectives = world.group().stats().operations - before;
    for (const auto& p : sharded.parameters()) found.values.push_back(p.grad().clone());
    sharded.step(optimizer);
  }
  const auto full = sharded.full_parameters();
  for (const auto& p : net.parameters()) found.values.push_back(p.detach().clone());
  return found;
}

/// One rank draws from torch's generator, several from hanji's.
TEST(RecomputedUnits, HaveTheBitsOfUnitsThatAreKept) {
  for (const int ranks : {1, 2, 3}) {
    test::run_ranks(ranks, [&](world::World& world) {
      const ChainTraining plain = train_chain(world, Form::kPlain, UnitCalls::kExplicit, false);
      for (const Form form :
           {Form::kPlain, Form::kEach, Form::kKeeping, Form::kChosen, Form::kAll}) {
        for (const UnitCalls calls : {UnitCalls::kExplicit, UnitCalls::kLens}) {
          for (const bool share_memory : {true, false}) {
            const ChainTraining found = train_chain(world, form, calls, share_memory);
            for (size_t i = 0; i < plain.values.size(); ++i) {
              EXPECT_TRUE(at::equal(found.values[i], plain.values[i]))
                  << ranks << " ranks, form " << static_cast<int>(form) << ", lens "
                  << (calls == UnitCalls::kLens) << ", shared " << share_memory << ", value " << i;
            }
            if (!share_memory) {
              EXPECT_LE(found.num_collectives, plain.num_collectives)
                  << "a unit is gathered once, for recomputation and for its backward";
            }
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace hanji::parallel
