// Ranks that differ: in how much data they have, in which parameters they use, in their batches.
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <thread>

#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/ddp/sync_batch_norm.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel {
namespace {

using test::run_ranks;
using testing::HasSubstr;

struct Line : torch::nn::Module {
  Line() {
    weight = register_parameter("weight", torch::arange(3, torch::kFloat64).add(1).sin());
    other = register_parameter("other", torch::ones({2}, torch::kFloat64));
  }
  at::Tensor sum_of_losses(int64_t begin, int64_t end) const {
    const at::Tensor x = torch::arange(begin * 3, end * 3, torch::kFloat64).view({-1, 3}).cos();
    return at::matmul(x, weight).tanh().square().sum();
  }
  at::Tensor weight, other;
};

/// Tokens of rank r in step s: ranks end after 1, 2 and 3 steps, with uneven batches.
int64_t tokens(int rank, int step) { return step > rank ? 0 : 1 + 2 * rank + step; }
int64_t first_token(int rank, int step) { return 1000 * step + 100 * rank; }

std::vector<at::Tensor> one_process() {
  Line net;
  torch::optim::SGD optimizer(net.parameters(), .1);
  std::vector<at::Tensor> weights;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    int64_t all = 0;
    at::Tensor loss = torch::zeros({}, torch::kFloat64);
    for (int rank = 0; rank < 3; ++rank) {
      const int64_t begin = first_token(rank, step);
      if (tokens(rank, step) == 0) continue;
      loss = loss + net.sum_of_losses(begin, begin + tokens(rank, step));
      all += tokens(rank, step);
    }
    (loss / all).backward();
    optimizer.step();
    weights.push_back(net.weight.detach().clone());
  }
  return weights;
}

/// A rank's step: one backward of means, or a backward per token of sums.
void backward(Line& net, Replicas& replicas, Average average, int64_t begin, int64_t count) {
  if (average == Average::kWeighted) {
    (net.sum_of_losses(begin, begin + count) / count).backward();
    return;
  }
  for (int64_t token = 0; token + 1 < count; ++token) {
    const auto guard = replicas.accumulate();
    net.sum_of_losses(begin + token, begin + token + 1).backward();
  }
  net.sum_of_losses(begin + count - 1, begin + count).backward();
}

TEST(Join, UnevenDataIsExactByTokenAndEndsTogether) {
  const auto expected = one_process();
  for (const Average average : {Average::kWeighted, Average::kSum}) {
    run_ranks(3, [&](world::World& world) {
      Line net;
      auto replicas = data_parallel(net, world.group(), {.average = average, .static_order = true});
      torch::optim::SGD optimizer(net.parameters(), .1);
      int step = 0;
      while (replicas.join(static_cast<double>(tokens(world.rank(), step)))) {
        const int64_t count = tokens(world.rank(), step);
        if (count > 0) backward(net, replicas, average, first_token(world.rank(), step), count);
        optimizer.step();
        optimizer.zero_grad();
        // A dozen terms below 1 in another order.
        EXPECT_LT((net.weight - expected.at(step)).abs().max().item<double>(), 1e-14);
        ++step;
      }
      EXPECT_EQ(step, 3);
    });
  }
}

TEST(Join, IsRefusedWhereItsWeightWouldNotCount) {
  run_ranks(1, [](world::World& world) {
    Line net, second, third;
    auto mean = data_parallel(net, world.group());
    EXPECT_THAT([&] { mean.join(3); }, testing::ThrowsMessage<Error>(HasSubstr("kWeighted")));
    auto sum = data_parallel(second, world.group(), {.average = Average::kSum});
    EXPECT_THAT([&] { sum.join(-1); }, testing::ThrowsMessage<Error>(HasSubstr("not negative")));
    auto stable = data_parallel(third, world.group(), {.average = Average::kSum, .num_grains = 2});
    EXPECT_THAT([&] { stable.join(1); }, testing::ThrowsMessage<Error>(HasSubstr("grains")));
  });
}

TEST(StaticOrder, SavesTheCallThatTellsWhatIsUsed) {
  run_ranks(2, [](world::World& world) {
    Line net;
    auto replicas = data_parallel(net, world.group(), {.static_order = true});
    std::vector<uint64_t> calls;
    for (int step = 0; step < 3; ++step) {
      net.zero_grad(step % 2 == 0);
      const uint64_t before = world.group().sequence();
      net.sum_of_losses(0, 4).backward();
      calls.push_back(world.group().sequence() - before);
      EXPECT_TRUE(net.weight.grad().defined());
      EXPECT_FALSE(net.other.grad().defined()) << "unused everywhere";
    }
    const uint64_t buckets = replicas.buckets().buckets.size();
    EXPECT_THAT(calls, testing::ElementsAre(buckets + 1, buckets, buckets));
  });
}

TEST(StaticOrder, WaitsForTheSumsOfARankThatIsLate) {
  run_ranks(2, [](world::World& world) {
    Line net;
    auto replicas =
        data_parallel(net, world.group(), {.average = Average::kSum, .static_order = true});
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      if (step == 1 && world.rank() == 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      net.sum_of_losses(2 * world.rank(), 2 * world.rank() + 2).backward();
    }
    Line whole;
    whole.sum_of_losses(0, 4).backward();
    // Two terms of four in another order.
    EXPECT_TRUE(at::allclose(net.weight.grad(), whole.weight.grad(), 0, 1e-15));
  });
}

TEST(StaticOrder, AnotherSetIsAnErrorThatNamesTheParameter) {
  run_ranks(1, [](world::World& world) {
    for (const bool more : {true, false}) {
      Line net;
      auto replicas = data_parallel(net, world.group(), {.static_order = true});
      const auto loss = [&](bool both) {
        const at::Tensor first = net.sum_of_losses(0, 2);
        return both ? first + net.other.sum() : first;
      };
      loss(!more).backward();
      net.zero_grad();
      EXPECT_THAT([&] { loss(more).backward(); },
                  testing::ThrowsMessage<std::exception>(testing::AllOf(
                      HasSubstr("parameter other"), HasSubstr(more ? "had none" : "had one"))));
    }
  });
}

at::Tensor images(int64_t begin, int64_t end) {
  return torch::arange(begin * 4 * 6, end * 4 * 6, torch::kFloat64)
      .mul(.7)
      .sin()
      .add(1000)
      .view({-1, 4, 2, 3});
}

at::Tensor targets(int64_t begin, int64_t end) { return images(begin + 50, end + 50).cos(); }

torch::nn::BatchNorm2d make_norm() {
  torch::nn::BatchNorm2d norm(4);
  norm->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  norm->weight.copy_(torch::arange(4, torch::kFloat64).add(1));
  norm->bias.copy_(torch::arange(4, torch::kFloat64).cos());
  return norm;
}

TEST(SyncBatchNorm, IsOneProcessOnTheWholeBatchForwardAndBackward) {
  const std::vector<int64_t> bounds = {0, 3, 3, 8};  // the rank in the middle has no image
  auto reference = make_norm();
  const at::Tensor whole = images(0, 8).requires_grad_();
  at::Tensor expected;
  for (int step = 0; step < 2; ++step) {
    reference->zero_grad();
    whole.mutable_grad().reset();
    expected = reference(whole);
    (expected * targets(0, 8)).sum().backward();
  }
  // Values near 1000 with deviations near 1: 8 * 6 terms of 2^-53 * 1000, times 10 for the chain.
  const auto close = [](const at::Tensor& a, const at::Tensor& b) {
    return (a - b).abs().sum().item<double>() < 1e-8;
  };
  run_ranks(3, [&](world::World& world) {
    auto norm = make_norm();
    const SyncBatchNorm sync(*norm, world.group());
    auto replicas = data_parallel(*norm, world.group(), {.average = Average::kSum});
    const int64_t begin = bounds[world.rank()], end = bounds[world.rank() + 1];
    const at::Tensor mine = images(begin, end).requires_grad_();
    for (int step = 0; step < 2; ++step) {
      norm->zero_grad();
      mine.mutable_grad().reset();
      const at::Tensor actual = sync(mine);
      EXPECT_TRUE(close(actual, expected.slice(0, begin, end)));
      (actual * targets(begin, end)).sum().backward();
    }
    EXPECT_TRUE(close(mine.grad(), whole.grad().slice(0, begin, end)));
    EXPECT_TRUE(close(norm->weight.grad(), reference->weight.grad()));
    EXPECT_TRUE(close(norm->bias.grad(), reference->bias.grad()));
    EXPECT_TRUE(close(norm->running_mean, reference->running_mean));
    EXPECT_TRUE(close(norm->running_var, reference->running_var));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 2);
    norm->eval();
    EXPECT_TRUE(at::equal(sync(images(0, 2)), norm(images(0, 2))));
  });
}

TEST(SyncBatchNorm, StableBitsAreRefusedBeforeAnythingIsSent) {
  run_ranks(2, [](world::World& world) {
    auto norm = make_norm();
    const SyncBatchNorm sync(*norm, world.group());
    const auto replicas = data_parallel(*norm, world.group(), {.num_grains = 2});
    if (world.rank() == 0) {
      EXPECT_THAT([&] { sync(images(0, 2)); },
                  testing::ThrowsMessage<Error>(HasSubstr("data_parallel trains its weight with "
                                                          "stable bits")));
    }
    norm->eval();
    EXPECT_TRUE(at::equal(sync(images(0, 2)), norm(images(0, 2))));
  });
}

TEST(SyncBatchNorm, WhatItCannotServeIsRefused) {
  run_ranks(1, [](world::World& world) {
    torch::nn::Linear linear(2, 2);
    EXPECT_THAT([&] { SyncBatchNorm(*linear, world.group()); },
                testing::ThrowsMessage<Error>(HasSubstr("BatchNorm1d")));
    torch::nn::BatchNorm1d norm(3);
    const SyncBatchNorm sync(*norm, world.group());
    EXPECT_THAT(
        [&] {
          sync(torch::ones({5, 4}));
        },
        testing::ThrowsMessage<Error>(HasSubstr("4 channels")));
    EXPECT_THAT(
        [&] {
          sync(torch::ones({1, 3}));
        },
        testing::ThrowsMessage<Error>(HasSubstr("a variance takes 2")));
  });
}

}  // namespace
}  // namespace hanji::parallel
