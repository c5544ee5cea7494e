#include "hanji/parallel/ddp/communication_hook.h"

#include <gmock/gmock.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <array>

#include "hanji/comm/all_reduce.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel {
namespace {

using test::run_ranks;
using testing::HasSubstr;

/// A matrix and a vector whose gradients are what `gradients_of` says.
struct Pair : torch::nn::Module {
  explicit Pair(at::ScalarType dtype) {
    matrix = register_parameter("matrix", torch::zeros({24, 40}, dtype));
    vector = register_parameter("vector", torch::zeros({33}, dtype));
  }
  at::Tensor matrix, vector;
};

std::array<at::Tensor, 2> gradients_of(int rank, at::ScalarType dtype) {
  return {torch::arange(24 * 40, torch::kFloat64).mul(.37).add(rank).sin().view({24, 40}).to(dtype),
          torch::arange(33, torch::kFloat64).add(5 * rank).cos().to(dtype)};
}

void backward(Pair& net, int rank) {
  net.zero_grad();
  const auto gradients = gradients_of(rank, net.matrix.scalar_type());
  ((net.matrix * gradients[0]).sum() + (net.vector * gradients[1]).sum()).backward();
}

struct Expected {
  std::array<at::Tensor, 2> mean, magnitude;  ///< Of g, and of |g|, in float64.
};

Expected expected_of(int ranks, at::ScalarType dtype) {
  Expected expected;
  for (size_t i = 0; i < 2; ++i) {
    for (int rank = 0; rank < ranks; ++rank) {
      const at::Tensor g = gradients_of(rank, dtype)[i].to(torch::kFloat64) / ranks;
      expected.mean[i] = rank == 0 ? g : expected.mean[i] + g;
      expected.magnitude[i] = rank == 0 ? g.abs() : expected.magnitude[i] + g.abs();
    }
  }
  return expected;
}

DataParallelOptions with(CommunicationHook hook, Average average = Average::kMean) {
  return {
      .average = average, .bucket_bytes = 64, .first_bucket_bytes = 64, .hook = std::move(hook)};
}

TEST(NarrowHook, RoundsNoMoreThanItsBitsAndHalvesTheBytes) {
  struct Case {
    CommunicationHook (*make)();
    double unit;
  };
  for (const Case& c : {Case{fp16_hook, 0x1p-11}, Case{bf16_hook, 0x1p-8}}) {
    const Expected expected = expected_of(3, torch::kFloat);
    std::array<at::Tensor, 3> results;
    run_ranks(3, [&](world::World& world) {
      Pair net(torch::kFloat);
      int64_t bytes[2] = {};
      for (const bool narrow : {false, true}) {
        auto replicas =
            data_parallel(net, world.group(), with(narrow ? c.make() : CommunicationHook()));
        const int64_t before = world.group().stats().bytes;
        backward(net, world.rank());
        bytes[narrow] = world.group().stats().bytes - before;
        if (narrow) {
          EXPECT_EQ(bytes[0] - bytes[1], 2 * replicas.buckets().flat.count);
        }
      }
      for (size_t i = 0; i < 2; ++i) {
        // One rounding per rank and at most 3 of the sum, and subnormals of fp16.
        const at::Tensor error = (net.parameters()[i].grad() - expected.mean[i]).abs();
        EXPECT_TRUE((error <= expected.magnitude[i] * 4 * c.unit + 3 * 0x1p-25).all().item<bool>());
        EXPECT_GT(error.max().item<double>(), 0);
      }
      results[world.rank()] = net.matrix.grad().clone();
    });
    for (const at::Tensor& result : results) EXPECT_TRUE(at::equal(result, results[0]));
  }
}

TEST(TopKHook, OfEverythingIsTheMeanAndTheSum) {
  const Expected expected = expected_of(2, torch::kFloat64);
  for (const Average average : {Average::kMean, Average::kSum}) {
    run_ranks(2, [&](world::World& world) {
      Pair net(torch::kFloat64);
      auto replicas = data_parallel(net, world.group(), with(top_k_hook(1.0), average));
      for (int step = 0; step < 2; ++step) backward(net, world.rank());
      const double factor = average == Average::kSum ? 2 : 1;
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(at::allclose(net.parameters()[i].grad(), expected.mean[i] * factor, 0, 1e-15));
      }
    });
  }
}

/// The mean of the gradients of `steps` equal steps, on every rank; they must be equal.
std::array<at::Tensor, 2> mean_over_steps(const std::function<CommunicationHook()>& make, int steps,
                                          Average average = Average::kMean) {
  std::array<std::array<at::Tensor, 2>, 2> sums;
  run_ranks(2, [&](world::World& world) {
    Pair net(torch::kFloat64);
    auto replicas = data_parallel(net, world.group(), with(make(), average));
    auto& sum = sums[world.rank()];
    for (int step = 0; step < steps; ++step) {
      backward(net, world.rank());
      for (size_t i = 0; i < 2; ++i) {
        const at::Tensor g = net.parameters()[i].grad() / steps;
        sum[i] = step == 0 ? g : sum[i] + g;
      }
    }
  });
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(sums[0][i], sums[1][i]));
  return sums[0];
}

double relative(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual - expected).norm() / expected.norm()).item<double>();
}

TEST(TopKHook, WhatIsNotSentNowComesLater) {
  const Expected expected = expected_of(2, torch::kFloat64);
  const auto make = [] { return top_k_hook(.1); };
  // The residual is at most 2 sqrt(1 - d) / d < 19 gradients (d = .1): 19 / 100 of what was sent.
  EXPECT_LT(relative(mean_over_steps(make, 100)[0], expected.mean[0]), .19 * 1.6);
  EXPECT_GT(relative(mean_over_steps(make, 1)[0], expected.mean[0]), .5) << "it does compress";
}

TEST(PowerSgdHook, AMatrixOfLowRankAndVectorsAreExact) {
  for (const Average average : {Average::kMean, Average::kSum}) {
    run_ranks(3, [&](world::World& world) {
      Pair net(torch::kFloat64);
      auto replicas = data_parallel(net, world.group(), with(power_sgd_hook({.rank = 2}), average));
      const at::Tensor row = torch::arange(40, torch::kFloat64).sin();
      const auto column = [](int rank) {
        return torch::arange(24, torch::kFloat64).add(rank).cos();
      };
      for (int step = 0; step < 2; ++step) {
        net.zero_grad();
        (net.matrix * at::outer(column(world.rank()), row)).sum().backward();
        const double n = average == Average::kMean ? 3 : 1;
        const at::Tensor expected = at::outer(column(0) + column(1) + column(2), row) / n;
        EXPECT_LT(relative(net.matrix.grad(), expected), 1e-13) << step;
      }
    });
  }
  const Expected expected = expected_of(2, torch::kFloat64);
  const auto one = mean_over_steps([] { return power_sgd_hook(); }, 1);
  EXPECT_TRUE(at::allclose(one[1], expected.mean[1], 0, 1e-15)) << "vectors travel whole";
}

TEST(PowerSgdHook, WhatARankCannotSayNowComesLater) {
  const Expected expected = expected_of(2, torch::kFloat64);
  const auto make = [] { return power_sgd_hook({.rank = 1}); };
  const double once = relative(mean_over_steps(make, 1)[0], expected.mean[0]);
  EXPECT_GT(once, .1) << "it does compress";
  EXPECT_LT(relative(mean_over_steps(make, 60)[0], expected.mean[0]), once / 10);
  const auto sum = mean_over_steps(make, 60, Average::kSum);
  EXPECT_LT(relative(sum[0], expected.mean[0] * 2), once / 10);
}

TEST(PowerSgdHook, MovesTwoFactorsInsteadOfTheMatrix) {
  run_ranks(2, [](world::World& world) {
    Pair net(torch::kFloat);
    auto replicas = data_parallel(net, world.group(), with(power_sgd_hook({.rank = 2})));
    const int64_t before = world.group().stats().bytes;
    backward(net, world.rank());
    const int64_t used = 2;  // a byte per parameter
    EXPECT_EQ(world.group().stats().bytes - before, 4 * (2 * (24 + 40) + 33) + used);
  });
}

TEST(HooksWithValuesOfEarlierSteps, AreSharedByNoTwoHandlesAndRanks) {
  const auto learn = [](world::World& world, Pair& net, const CommunicationHook& hook) {
    auto replicas = data_parallel(net, world.group(), with(hook));
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      backward(net, world.rank());
    }
    return std::array{net.matrix.grad().clone(), net.vector.grad().clone()};
  };
  for (const auto& make : {fp16_hook, bf16_hook, +[] { return top_k_hook(.1); },
                           +[] { return power_sgd_hook({.rank = 1}); }}) {
    const CommunicationHook one = make();
    run_ranks(2, [&](world::World& world) {
      Pair first(torch::kFloat), second(torch::kFloat), alone(torch::kFloat);
      (void)learn(world, first, one);
      const auto after = learn(world, second, one), expected = learn(world, alone, make());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::equal(after[i], expected[i])) << one.name << " " << i;
      }
    });
  }
}

TEST(OwnHook, SeesEveryBucketInOrderAndDecides) {
  run_ranks(2, [](world::World& world) {
    Pair net(torch::kFloat64);
    std::vector<size_t> begun, finished;
    CommunicationHook hook{
        "doubling", "none",
        [&](GradientBucket& bucket, const comm::Group& group) {
          begun.push_back(bucket.index);
          EXPECT_EQ(bucket.gradients.size(), 1u);
          bucket.gradients[0].mul_(2);
          return comm::all_reduce(bucket.flat, group, {.op = bucket.op, .tag = bucket.index});
        },
        [&](GradientBucket& bucket, const comm::Group&) { finished.push_back(bucket.index); }};
    auto replicas = data_parallel(net, world.group(), with(hook));
    backward(net, world.rank());
    EXPECT_THAT(begun, testing::ElementsAre(0u, 1u));
    EXPECT_EQ(finished, begun);
    EXPECT_TRUE(
        at::allclose(net.matrix.grad(), expected_of(2, torch::kFloat64).mean[0] * 2, 0, 1e-15));
  });
}

TEST(CommunicationHookStart, WhatCannotHoldIsRefused) {
  EXPECT_THROW(top_k_hook(0), Error);
  EXPECT_THROW(top_k_hook(1.5), Error);
  EXPECT_THROW(power_sgd_hook({.rank = 0}), Error);
  run_ranks(1, [](world::World& world) {
    Pair net(torch::kFloat);
    auto options = with(bf16_hook());
    options.num_grains = 2;
    EXPECT_THAT([&] { data_parallel(net, world.group(), options); },
                testing::ThrowsMessage<Error>(HasSubstr("rounded to 8 bits")));
    Pair narrow(torch::kBFloat16);
    EXPECT_THAT([&] { data_parallel(narrow, world.group(), with(bf16_hook())); },
                testing::ThrowsMessage<Error>(HasSubstr("the hook bf16 takes")));
  });
}

}  // namespace
}  // namespace hanji::parallel
