#include "hanji/parallel/offload/activation_store.h"

#include <gmock/gmock.h>
#include <malloc.h>
#include <torch/types.h>

#include <filesystem>
#include <iterator>

#include "hanji/base/status.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/fsdp/fully_shard.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/test_disk.h"
#include "hanji/parallel/test_net.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::parallel {
namespace {

using test_net::refusal;
using testing::HasSubstr;

ActivationOptions options_in(const test::TemporaryFolder& folder) {
  return {.folder = folder.path(), .window_bytes = 1 << 16, .smallest_bytes = 1};
}

/// Views, results that are saved by their own operation, masks, tensors saved twice, an expansion.
at::Tensor many_ways(const at::Tensor& x, const at::Tensor& weight) {
  at::Tensor y = torch::tanh(x.mm(weight));
  y = torch::dropout(y, .3, true) * y;
  const auto parts = torch::exp(y).chunk(2, 1);
  y = parts[0] * parts[1].t().contiguous().t() + parts[1].sum(1, true).expand({40, 50});
  return y.mul(2).relu_().square().sum();
}

std::vector<at::Tensor> gradients(ActivationStore* store, int backwards) {
  const at::Tensor weight = torch::arange(3000, torch::kFloat).sin().view({30, 100});
  const at::Tensor x = torch::arange(1200, torch::kFloat).cos().view({40, 30});
  x.requires_grad_();
  weight.requires_grad_();
  torch::manual_seed(3);
  at::Tensor loss;
  if (store == nullptr) {
    loss = many_ways(x, weight);
  } else {
    const auto scope = store->offload();
    loss = many_ways(x, weight);
    EXPECT_GT(store->stored_bytes(), 5 * 16000);
  }
  for (int i = 0; i < backwards; ++i) loss.backward({}, i + 1 < backwards);
  return {x.grad(), weight.grad()};
}

TEST(ActivationStore, GradientsHaveTheBitsOfMemory) {
  const test::TemporaryFolder folder;
  for (const auto engine : {base::ScratchEngine::kAuto, base::ScratchEngine::kThread}) {
    auto options = options_in(folder);
    options.engine = engine;
    ActivationStore store(options);
    for (const int backwards : {1, 2}) {
      const auto expected = gradients(nullptr, backwards), found = gradients(&store, backwards);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::equal(found[i], expected[i])) << i << " " << backwards;
      }
      EXPECT_EQ(store.stored_bytes(), 0);
    }
  }
}

TEST(ActivationStore, ItsFileIsClosedWithTheLastGraph) {
  const test::TemporaryFolder folder;
  const auto open_files = [] {
    using Entries = std::filesystem::directory_iterator;
    return std::distance(Entries("/proc/self/fd"), Entries());
  };
  const auto before = open_files();
  {
    ActivationStore store(options_in(folder));
    EXPECT_GT(open_files(), before);
    gradients(&store, 1);
  }
  EXPECT_EQ(open_files(), before);
}

TEST(ActivationStore, MemoryHoldsAWindowAndNotWhatIsSaved) {
  const test::TemporaryFolder folder;
  constexpr int64_t kBytes = 4 << 20, kLayers = 16;
  ActivationStore store({.folder = folder.path(), .window_bytes = 2 * kBytes});
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // else freed tensors may stay with the allocator
  const at::Tensor x = torch::ones({kBytes / 4}).requires_grad_();
  const int64_t before = test_disk::private_bytes();
  at::Tensor y = x * 1;
  {
    const auto scope = store.offload();
    for (int64_t i = 0; i < kLayers; ++i) y = y.sin();  // saves its argument
  }
  EXPECT_GE(store.stored_bytes(), kLayers * kBytes);
  // The window, a spare one, the newest result and one being made; 64 MiB without the store.
  EXPECT_LT(test_disk::private_bytes() - before, 8 * kBytes);
  y.sum().backward();
  at::Tensor expected = torch::ones({1}), value = torch::ones({1});
  for (int64_t i = 0; i < kLayers; ++i) {
    expected = expected * value.cos();
    value = value.sin();
  }
  EXPECT_NEAR(x.grad()[0].item<float>(), expected.item<float>(), 1e-6);
}

enum class Way { kPlain, kCheckpointed, kProductsKept };

struct TwoUnits : torch::nn::Module {
  TwoUnits() {
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(torch::arange(p.numel()).add(1).sin().view(p.sizes()));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto inner = [this](const at::Tensor& in) { return torch::tanh(unit(first)(in)); };
    const at::Tensor between = way == Way::kPlain ? inner(x)
                               : way == Way::kCheckpointed
                                   ? checkpointed(inner, x)
                                   : checkpointed_keeping(lens::keep_products(), inner, x);
    return unit(second)(between).sin();
  }
  Way way = Way::kPlain;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 40));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(40, 5));
};

/// The gradients of this rank.
at::Tensor train_two_units(world::World& world, ActivationStore* store, Way way, bool shards) {
  TwoUnits net;
  net.way = way;
  std::optional<Sharded> sharded;
  std::optional<Replicas> replicas;
  if (shards) {
    sharded = fully_shard(
        net, world.group(),
        {.sharding = {.share_memory = false}, .units = units_of_type<torch::nn::LinearImpl>()});
  } else {
    replicas.emplace(data_parallel(net, world.group()));
  }
  const auto run = [&] {
    return unit(net)(test_net::rows(world.rank(), 0, 6).to(torch::kFloat)).square().mean();
  };
  at::Tensor loss;
  if (store == nullptr) {
    loss = run();
  } else {
    const auto scope = store->offload();
    loss = run();
    EXPECT_GT(store->stored_bytes(), 0);
  }
  loss.backward();
  return shards ? test_net::flat_gradients(*sharded) : net.first->weight.grad().clone();
}

TEST(ActivationStore, WorksWithEveryStrategyAndWithCheckpoints) {
  const test::TemporaryFolder folder;
  for (const bool shards : {false, true}) {
    test::run_ranks(2, [&](world::World& world) {
      const at::Tensor expected = train_two_units(world, nullptr, Way::kPlain, shards);
      EXPECT_GT(expected.abs().max().item<float>(), 0);
      for (const Way way : {Way::kPlain, Way::kCheckpointed, Way::kProductsKept}) {
        ActivationStore store(options_in(folder));
        EXPECT_TRUE(at::equal(train_two_units(world, &store, way, shards), expected));
        EXPECT_TRUE(at::equal(train_two_units(world, nullptr, way, shards), expected));
      }
    });
  }
}

TEST(ActivationStore, WhatIsComputedAgainStaysInMemory) {
  const test::TemporaryFolder folder;
  ActivationStore store(options_in(folder));
  const auto scope = store.offload();  // backward too is within it
  int64_t stored = 0;
  const at::Tensor x = torch::ones({50}).requires_grad_();
  const at::Tensor y = checkpointed(
      [&](const at::Tensor& in) {
        const at::Tensor inner = in.sin().cos();
        stored = store.stored_bytes();
        return inner;
      },
      x * 2);
  EXPECT_EQ(stored, 0) << "of a graph that is let go";
  const int64_t after_forward = store.stored_bytes();
  EXPECT_GT(after_forward, 0);
  y.sum().backward();
  EXPECT_LE(stored, after_forward) << "while it was recomputed";
}

TEST(ActivationStore, FailuresReachForwardAndBackward) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(refusal([&] { ActivationStore({.folder = folder.path() / "none"}); }),
              HasSubstr((folder.path() / "none").string()));
  auto options = options_in(folder);
  options.window_bytes = 1;  // nothing is read ahead, nothing stays in memory
  ActivationStore store(options);
  const at::Tensor x = torch::ones({5000}).requires_grad_();
  at::Tensor y;
  {
    const auto scope = store.offload();
    y = (x * 2).sin().cos().sum();
  }
  test_disk::cut_files_of(folder.path(), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(refusal([&] { y.backward({}, /*keep_graph=*/true); }),
                HasSubstr("somebody has cut the file"));
  }
}

TEST(ActivationStore, WhatStaysIsCheckedAgainstChanges) {
  const test::TemporaryFolder folder;
  auto options = options_in(folder);
  options.smallest_bytes = 1 << 20;
  ActivationStore store(options);
  const auto scope = store.offload();
  const at::Tensor x = torch::ones({50}).requires_grad_();
  const at::Tensor y = x * 2;
  const at::Tensor z = y.sin();
  y.add_(1);
  EXPECT_THAT(refusal([&] { z.sum().backward(); }), HasSubstr("was changed in place"));
  EXPECT_EQ(store.stored_bytes(), 0);
}

}  // namespace
}  // namespace hanji::parallel
