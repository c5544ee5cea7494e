// Stable bits: the gradients of a global batch do not depend on who computed which grain.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "hanji/comm/heap.h"
#include "hanji/layout/split.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/pairwise_tree.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel {
namespace {

using layout::Range;
using test::run_ranks;
using testing::HasSubstr;

/// Float32 and values over many magnitudes: another order of a sum is another sum.
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(3, 37));
    second = register_module("second", torch::nn::Linear(37, 2));
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(torch::arange(p.numel()).add(1).sin().view(p.sizes()));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

at::Tensor loss_of_grain(Net& net, int64_t grain) {
  const at::Tensor x = torch::arange(6).add(7 * grain).cos().view({2, 3});
  const double scale = std::pow(10.0, static_cast<double>(grain % 5) - 2);
  return net.second(torch::tanh(net.first(x))).square().sum() * scale;
}

using Gradients = std::vector<at::Tensor>;

Gradients gradients_of(Net& net) {
  Gradients gradients;
  for (const auto& p : net.parameters()) gradients.push_back(p.grad().clone());
  return gradients;
}

/// The sum over grains [begin, end) by the tree as it is written down: no rank, no reducer.
Gradients plain_sum(Net& net, int64_t begin, int64_t end) {
  if (end - begin == 1) {
    net.zero_grad(true);
    loss_of_grain(net, begin).backward();
    return gradients_of(net);
  }
  const int64_t middle = begin + schedule::split_point(end - begin);
  Gradients left = plain_sum(net, begin, middle);
  const Gradients right = plain_sum(net, middle, end);
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

void run_grains(Net& net, Replicas& replicas) {
  for (int64_t grain = replicas.grains().begin; grain < replicas.grains().end; ++grain) {
    replicas.grain(grain);
    loss_of_grain(net, grain).backward();
  }
}

void expect_bits(Net& net, const Gradients& expected, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(net.parameters()[i].grad(), expected[i])) << what << ", parameter " << i;
  }
}

struct Case {
  int ranks;
  int64_t num_grains;
  int64_t bucket_bytes;
  std::vector<double> shares = {};
};

TEST(Stable, GradientsHaveTheBitsOfThePlainTreeWhoeverOwnsWhichGrain) {
  const std::vector<Case> cases = {{1, 1, 64},
                                   {1, 7, 1 << 20},
                                   {2, 2, 64},
                                   {2, 12, 300},
                                   {3, 12, 64},
                                   {4, 12, 1 << 20},
                                   {3, 7, 64},
                                   {4, 5, 300},
                                   {2, 8, 64, {.25, .75}},
                                   {3, 11, 300, {5, 1, 5}},
                                   {4, 20, 64, {.25, .25, .10, .40}}};
  for (const Case& c : cases) {
    Net reference;
    const Gradients expected = plain_sum(reference, 0, c.num_grains);
    const std::string what = std::to_string(c.ranks) + " ranks, " + std::to_string(c.num_grains);
    run_ranks(c.ranks, [&](world::World& world) {
      DataParallelOptions options{.average = Average::kSum,
                                  .bucket_bytes = c.bucket_bytes,
                                  .first_bucket_bytes = 16,
                                  .num_grains = c.num_grains};
      if (!c.shares.empty()) {
        options.owners = layout::split_grains(c.num_grains, c.ranks, c.shares).or_throw();
      }
      Net net;
      auto replicas = data_parallel(net, world.group(), options);
      for (int step = 0; step < 3; ++step) {
        run_grains(net, replicas);
        expect_bits(net, expected, what);
      }
    });
  }
}

TEST(Stable, TheOrderOfASumOverRanksWouldShow) {
  // The test above could not tell anything if every order gave the same bits.
  Net net;
  const Gradients tree = plain_sum(net, 0, 12);
  Gradients straight = plain_sum(net, 0, 1);
  for (int64_t grain = 1; grain < 12; ++grain) {
    const Gradients one = plain_sum(net, grain, grain + 1);
    for (size_t i = 0; i < one.size(); ++i) straight[i] += one[i];
  }
  EXPECT_FALSE(at::equal(tree[0], straight[0]));
}

TEST(Stable, AMeanDividesOnceByTheNumberOfGrains) {
  Net reference;
  Gradients expected = plain_sum(reference, 0, 6);
  for (at::Tensor& one : expected) one.div_(6.0);
  run_ranks(2, [&](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group(), {.num_grains = 6});
    run_grains(net, replicas);
    expect_bits(net, expected, "mean");
  });
}

TEST(Stable, OnlyTheLastGrainOfARankCommunicates) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group(), {.num_grains = 6});
    const uint64_t before = world.group().sequence();
    const Range own = replicas.grains();
    EXPECT_EQ(own, (Range{world.rank() * 3, world.rank() * 3 + 3}));
    for (int64_t grain = own.begin; grain < own.end; ++grain) {
      EXPECT_EQ(world.group().sequence(), before) << "grain " << grain;
      replicas.grain(grain);
      loss_of_grain(net, grain).backward();
    }
    // One call per bucket and one for which parameters were used.
    EXPECT_EQ(world.group().sequence(), before + replicas.buckets().buckets.size() + 1);
  });
}

TEST(Stable, ARankHoldsNoMoreBuffersThanItsFold) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group(), {.num_grains = 14});
    const auto& fold = replicas.grain_tree().ranks[world.rank()];
    const auto bytes = static_cast<size_t>(fold.num_buffers * replicas.buckets().flat.count * 4);
    EXPECT_EQ(world.heap().usage()["gradients"], bytes);
    run_grains(net, replicas);
    const size_t peak = world.heap().peak_bytes();
    run_grains(net, replicas);
    EXPECT_EQ(world.heap().peak_bytes(), peak);
  });
}

TEST(Stable, AParameterUsedInOneGrainHasItsShareAndAnUnusedOneNone) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group(), {.average = Average::kSum, .num_grains = 4});
    for (int step = 0; step < 2; ++step) {
      for (int64_t grain = replicas.grains().begin; grain < replicas.grains().end; ++grain) {
        replicas.grain(grain);
        at::Tensor loss = net.first->weight.sum();
        if (grain == 1) loss = loss + 3 * net.second->weight.sum();
        loss.backward();
      }
      EXPECT_TRUE(at::equal(net.first->weight.grad(), torch::full({37, 3}, 4.0F)));
      EXPECT_TRUE(at::equal(net.second->weight.grad(), torch::full({2, 37}, 3.0F)));
      EXPECT_FALSE(net.second->bias.grad().defined()) << "unused everywhere";
    }
  });
}

TEST(Stable, AGrainThatTouchesNothingTakesPartByFinish) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group(), {.average = Average::kSum, .num_grains = 4});
    for (int64_t grain = replicas.grains().begin; grain < replicas.grains().end; ++grain) {
      replicas.grain(grain);
      grain % 2 == 0 ? net.first->weight.sum().backward() : replicas.finish();
    }
    EXPECT_TRUE(at::equal(net.first->weight.grad(), torch::full({37, 3}, 2.0F)));
  });
}

TEST(Stable, ARankWithoutGrainsTakesPartByFinish) {
  Net reference;
  const Gradients expected = plain_sum(reference, 0, 3);
  run_ranks(3, [&](world::World& world) {
    Net net;
    auto replicas = data_parallel(
        net, world.group(),
        {.average = Average::kSum, .num_grains = 3, .owners = {{0, 2}, {2, 2}, {2, 3}}});
    world.rank() == 1 ? replicas.finish() : run_grains(net, replicas);
    expect_bits(net, expected, "a rank without grains");
  });
}

template <class Body>
void expect_refusal(const Body& body, const char* words) {
  try {
    body();
    ADD_FAILURE() << "accepted; expected: " << words;
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST(Stable, GrainsComeInOrderOneBackwardEach) {
  run_ranks(1, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group(), {.num_grains = 3});
    expect_refusal([&] { loss_of_grain(net, 0).backward(); }, "outside any grain");
    expect_refusal([&] { replicas.finish(); }, "outside any grain");
    expect_refusal([&] { replicas.grain(1); }, "grain 0 is due");
    expect_refusal([&] { (void)replicas.accumulate(); }, "grain(index)");
    replicas.grain(0);
    expect_refusal([&] { replicas.grain(1); }, "grain 0 has not ended");
  });
}

TEST(Stable, WhatCannotBeStableIsRefused) {
  run_ranks(2, [](world::World& world) {
    Net net;
    const auto refused = [&](const DataParallelOptions& options, const char* words) {
      expect_refusal([&] { data_parallel(net, world.group(), options); }, words);
    };
    refused({.average = Average::kWeighted, .num_grains = 4}, "before the sum");
    refused({.num_grains = 1}, "whole grain");
    refused({.num_grains = 4, .owners = {{0, 4}}}, "names 1 ranks");
    refused({.num_grains = 4, .owners = {{0, 2}, {3, 4}}}, "contiguous");
    auto replicas = data_parallel(net, world.group());
    expect_refusal([&] { replicas.grain(0); }, "num_grains");
    expect_refusal([&] { (void)replicas.grain_tree(); }, "num_grains");
    Net narrow;
    narrow.to(torch::kBFloat16);
    expect_refusal([&] { data_parallel(narrow, world.group(), {.num_grains = 4}); }, "float32");
  });
}

}  // namespace
}  // namespace hanji::parallel
