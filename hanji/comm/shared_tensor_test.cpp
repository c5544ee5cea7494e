#include "hanji/comm/shared_tensor.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>

#include "hanji/comm/barrier.h"
#include "hanji/test/run_ranks.h"

namespace hanji::comm {
namespace {

using test::run_ranks;

TEST(SharedTensor, WhatEachRankWritesAllSee) {
  run_ranks(3, [](world::World& world) {
    const Group& group = world.group();
    const at::Tensor shared = shared_zeros({3, 100}, at::kFloat, 1, group, "parameters");
    EXPECT_EQ(shared.sum().item<float>(), 0);
    EXPECT_TRUE(world.heap().contains(shared));
    barrier(group);
    shared[world.rank()].fill_(world.rank() + 1);
    barrier(group);
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(shared[rank][99].item<float>(), rank + 1);
    const size_t bytes = 3 * 100 * 4;
    EXPECT_EQ(world.heap().usage()["parameters"] >= bytes, world.rank() == 1);
    barrier(group);
  });
}

TEST(SharedTensor, StaysWhileAnyRankHasIt) {
  run_ranks(2, [](world::World& world) {
    at::Tensor shared = shared_zeros({1000}, at::kLong, 0, world.group(), "parameters");
    if (world.rank() == 0) shared.copy_(at::arange(1000));
    barrier(world.group());
    if (world.rank() == 0) {
      shared.reset();
      const at::Tensor other = world.heap().zeros({1000}, at::kLong, "other");
      barrier(world.group());
    } else {
      barrier(world.group());
      EXPECT_TRUE(at::equal(shared, at::arange(1000)));
    }
    barrier(world.group());
  });
}

TEST(SharedTensor, APrivateViewIsWrittenByOneRankAndOutlivesTheWorld) {
  at::Tensor kept;
  run_ranks(2, [&](world::World& world) {
    const Group& group = world.group();
    const at::Tensor shared = shared_zeros({5000}, at::kFloat, 0, group, "parameters");
    if (world.rank() == 0) shared.fill_(3);
    barrier(group);
    at::Tensor own = private_view(shared, group);
    own[world.rank()] = 7;
    EXPECT_EQ(own[world.rank()].item<float>(), 7);
    EXPECT_EQ(own[1 - world.rank()].item<float>(), 3);
    EXPECT_EQ(shared.min().item<float>(), 3);
    EXPECT_EQ(shared.max().item<float>(), 3);
    EXPECT_EQ(private_view(shared.slice(0, 4990), group).sum().item<float>(), 30);
    EXPECT_EQ(private_view(shared.slice(0, 0, 0), group).numel(), 0);
    if (world.rank() == 1) kept = own;
  });
  EXPECT_EQ(kept.sum().item<float>(), 3 * 5000 + 4);
}

TEST(SharedTensor, OfNothingHasNoElements) {
  run_ranks(2, [](world::World& world) {
    EXPECT_EQ(shared_zeros({0}, at::kFloat, 0, world.group(), "parameters").numel(), 0);
  });
}

}  // namespace
}  // namespace hanji::comm
