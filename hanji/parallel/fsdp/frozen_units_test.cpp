// Adapters that learn on frozen blocks: in units of their own, or in those of the blocks.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hanji/comm/heap.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel {
namespace {

namespace frozen_units {

using test::run_ranks;
using test_net::same_bits;
using test_net::Values;

constexpr int64_t kWidth = 24, kInner = 83;
constexpr int kBlocks = 8;
/// Elements of what is frozen in a block.
constexpr size_t kFrozen = 2 * kWidth * kInner + kWidth + kInner;

struct AdapterImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return up(down(x)); }
  torch::nn::Linear down = register_module("down", torch::nn::Linear(kWidth, 2));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(2, kWidth));
};
TORCH_MODULE(Adapter);

enum class Place { kInBlock, kBesideBlock };

/// Its adapter's gradients are there before backward reads what is frozen.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(bool adapts) {
    if (adapts) adapter = register_module("adapter", Adapter());
    for (auto& p : widen->parameters()) p.set_requires_grad(false);
    for (auto& p : narrow->parameters()) p.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = x + narrow(torch::tanh(widen(x)));
    return adapter ? y + adapter(y) : y;
  }
  torch::nn::Linear widen = register_module("widen", torch::nn::Linear(kWidth, kInner));
  torch::nn::Linear narrow = register_module("narrow", torch::nn::Linear(kInner, kWidth));
  Adapter adapter = nullptr;
};
TORCH_MODULE(Block);

enum class Form { kPlain, kEach, kAll };

/// The root learns at both ends, and its norm is frozen.
struct Net : torch::nn::Module {
  explicit Net(Place place, int seed = 0) {
    for (int i = 0; i < kBlocks; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), Block(place == Place::kInBlock)));
      if (place == Place::kInBlock) continue;
      beside.push_back(register_module("adapter" + std::to_string(i), Adapter()));
    }
    for (auto& p : norm->parameters()) p.set_requires_grad(false);
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      const auto index = torch::arange(p.numel(), torch::kDouble) + 1 + 100 * seed;
      p.copy_((index.sin() * 0.1).view(p.sizes()));
    }
  }
  at::Tensor block(int layer, const at::Tensor& x) {
    const int i = uses_one_twice && layer == kBlocks - 1 ? 2 : layer;
    const at::Tensor y = unit(blocks[i])(x);
    return beside.empty() ? y : y + unit(beside[i])(y);
  }
  at::Tensor forward(const at::Tensor& input) {
    const auto run = [this](int begin, int end) {
      return [this, begin, end](at::Tensor x) {
        for (int i = begin; i < end; ++i) {
          if (form == Form::kPlain) x.register_hook([this](const at::Tensor&) { look(); });
          x = block(i, x);
        }
        return x;
      };
    };
    at::Tensor x = first(input);
    if (form == Form::kPlain) x = run(0, kBlocks)(x);
    if (form == Form::kAll) x = checkpointed(run(0, kBlocks), x);
    for (int i = 0; form == Form::kEach && i < kBlocks; ++i) {
      x.register_hook([this](const at::Tensor&) { look(); });
      x = checkpointed(run(i, i + 1), x);
    }
    return last(norm(x));
  }
  void look() {
    if (on_gradient) on_gradient();
  }
  std::vector<at::Tensor> learning() {
    std::vector<at::Tensor> found;
    for (const auto& entry : learning_parameters(*this)) found.push_back(entry.tensor);
    return found;
  }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, kWidth));
  std::vector<Block> blocks;
  std::vector<Adapter> beside;
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(kWidth, 5));
  Form form = Form::kPlain;
  bool uses_one_twice = false;
  std::function<void()> on_gradient;  ///< Of a block's input.
};

struct Job {
  const char* name;
  Place place = Place::kInBlock;
  Form form = Form::kPlain;
  UnitCalls calls = UnitCalls::kExplicit;
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  bool share_memory = false;
  bool uses_one_twice = false;
  int in_flight = 2;
};

constexpr auto kBeside = Place::kBesideBlock;
const std::vector<Job> kJobs = {
    {.name = "in blocks"},
    {.name = "beside", .place = kBeside},
    {.name = "shared", .share_memory = true},
    {.name = "lens", .calls = UnitCalls::kLens},
    {.name = "lens, beside", .place = kBeside, .calls = UnitCalls::kLens},
    {.name = "each again", .form = Form::kEach},
    {.name = "each again, beside", .place = kBeside, .form = Form::kEach},
    {.name = "all again", .form = Form::kAll},
    {.name = "all again, beside", .place = kBeside, .form = Form::kAll},
    {.name = "each again, lens", .form = Form::kEach, .calls = UnitCalls::kLens},
    {.name = "twice", .uses_one_twice = true},
    {.name = "twice, beside, all again",
     .place = kBeside,
     .form = Form::kAll,
     .uses_one_twice = true},
    {.name = "one in flight", .in_flight = 1},
    {.name = "whole until the end",
     .place = kBeside,
     .strategy = ShardingStrategy::kShardGradOp,
     .uses_one_twice = true}};

constexpr int kSteps = 2;
constexpr int kRanks = 2;  // whose sums have one order only

at::Tensor loss_of(const at::Tensor& outputs) { return outputs.square().sum(); }

at::Tensor rows_of(int step, int rank) {
  return test_net::rows(step, 3 * rank, 3 * rank + 3).to(torch::kFloat);
}

Values values_of(Net& net) {
  Values values;
  for (const auto& p : net.parameters()) values.push_back(p.detach().clone());
  return values;
}

/// One process, rank by rank.
Values train_alone(const Job& job) {
  Net net(job.place);
  net.uses_one_twice = job.uses_one_twice;
  torch::optim::AdamW optimizer(net.learning(), 1e-2);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int rank = 0; rank < kRanks; ++rank) loss_of(net.forward(rows_of(step, rank))).backward();
    for (auto& p : net.learning()) {
      if (p.grad().defined()) p.mutable_grad().div_(kRanks);
    }
    optimizer.step();
  }
  return values_of(net);
}

FullyShardOptions options_of(const Job& job) {
  FullyShardOptions options{.strategy = job.strategy, .calls = job.calls};
  options.units = [place = job.place](const std::string&, const torch::nn::Module& module) {
    if (dynamic_cast<const BlockImpl*>(&module) != nullptr) return true;
    return place == kBeside && dynamic_cast<const AdapterImpl*>(&module) != nullptr;
  };
  options.sharding = {.share_memory = job.share_memory, .max_units_in_flight = job.in_flight};
  return options;
}

/// The most bytes of whole units that a gradient of a block met, root included.
struct Trained {
  Values values;
  size_t most_whole = 0;
};

Trained train(const world::World& world, const Job& job,
              const std::optional<comm::Group>& secondary = {}) {
  Net net(job.place, world.rank());
  net.form = job.form;
  net.uses_one_twice = job.uses_one_twice;
  FullyShardOptions options = options_of(job);
  options.reshard_after_forward_to = secondary;
  auto sharded = fully_shard(net, world.group(), options);
  Trained found;
  net.on_gradient = [&] {
    found.most_whole = std::max(found.most_whole, world.heap().usage()["unsharded units"]);
  };
  torch::optim::AdamW optimizer(sharded.parameters(), 1e-2);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = rows_of(step, world.rank());
    loss_of(job.calls == UnitCalls::kLens ? net.forward(x) : unit(net)(x)).backward();
    EXPECT_EQ(world.heap().usage()["unsharded units"], 0u) << job.name;
    sharded.step(optimizer);
  }
  const auto full = sharded.full_parameters();
  found.values = values_of(net);
  return found;
}

TEST(FrozenUnits, AreWholeOnlyAroundTheirBackwardAndTheBitsAreThoseOfOneProcess) {
  std::vector<Values> expected;
  for (const Job& job : kJobs) expected.push_back(train_alone(job));
  run_ranks(kRanks, [&](world::World& world) {
    for (size_t i = 0; i < kJobs.size(); ++i) {
      const Job& job = kJobs[i];
      const Trained found = train(world, job);
      EXPECT_TRUE(same_bits(found.values, expected[i])) << job.name;
      // A unit that is recomputed immediately is unsharded immediately.
      if (job.share_memory || job.form == Form::kAll) continue;
      if (job.strategy == ShardingStrategy::kShardGradOp) continue;
      EXPECT_LT(found.most_whole, 4 * 4 * kFrozen) << job.name << ": of eight blocks";
      EXPECT_GT(found.most_whole, 4 * kFrozen) << job.name;
    }
  });
}

TEST(FrozenUnits, AreGatheredAmongNearRanksInBackward) {
  run_ranks(4, [](world::World& world) {
    const comm::Group secondary = *world.group().split(world.rank() / 2, world.rank(), "secondary");
    for (const Form form : {Form::kPlain, Form::kEach}) {
      const Job job{.name = "secondary", .form = form, .uses_one_twice = true};
      const Trained found = train(world, job, secondary);
      EXPECT_TRUE(same_bits(found.values, train(world, job).values));
      EXPECT_LT(found.most_whole, 4 * 4 * kFrozen);
    }
  });
}

}  // namespace frozen_units
}  // namespace
}  // namespace hanji::parallel
