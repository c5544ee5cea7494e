#include "hanji/parallel/ddp/data_parallel.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <set>

#include "hanji/base/clock.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/heap.h"
#include "hanji/test/run_ranks.h"
#include "hanji/trace/recorder.h"

namespace hanji::parallel {
namespace {

using test::run_ranks;
using testing::HasSubstr;

struct Net : torch::nn::Module {
  explicit Net(int seed = 0) {
    first = register_module("first", torch::nn::Linear(3, 5));
    second = register_module("second", torch::nn::Linear(5, 2));
    to(torch::kFloat64);
    // Values by formula: the ranks are threads, and torch's generator is one for all of them.
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      p.copy_((torch::arange(p.numel(), torch::kFloat64) + 1 + 100 * seed).sin().view(p.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

/// Eight rows that depend on nothing but their number; rank r of n takes its share.
at::Tensor rows(int64_t begin, int64_t end) {
  return torch::arange(begin * 3, end * 3, torch::kFloat64).view({-1, 3}).sin();
}

at::Tensor mean_loss(Net& net, int64_t begin, int64_t end) {
  return net.forward(rows(begin, end)).square().mean();
}

/// Both sums have at most 8 terms below 1 in other orders: 8 * 2^-53 * 8 < 1e-14.
constexpr double kTolerance = 1e-14;

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_LT((actual - expected).abs().max().item<double>(), kTolerance);
}

class DataParallel : public testing::TestWithParam<std::tuple<int, int64_t>> {};

TEST_P(DataParallel, GradientsAreThoseOfOneProcessOnTheWholeBatch) {
  const auto [ranks, bucket_bytes] = GetParam();
  Net reference;
  mean_loss(reference, 0, 8).backward();
  run_ranks(ranks, [&](world::World& world) {
    Net net;
    auto replicas =
        data_parallel(net, world.group(), {.bucket_bytes = bucket_bytes, .first_bucket_bytes = 16});
    const int64_t share = 8 / ranks;
    mean_loss(net, world.rank() * share, (world.rank() + 1) * share).backward();
    for (size_t i = 0; i < net.parameters().size(); ++i) {
      expect_close(net.parameters()[i].grad(), reference.parameters()[i].grad());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(RanksAndBuckets, DataParallel,
                         testing::Combine(testing::Values(1, 2, 4),
                                          testing::Values<int64_t>(16, 200, 1 << 20)));

TEST(DataParallelStart, EveryRankTakesTheParametersAndBuffersOfRank0) {
  run_ranks(3, [](world::World& world) {
    Net net(world.rank() + 1);
    net.register_buffer("scale", torch::full({2}, 7.0 + world.rank()));
    auto replicas = data_parallel(net, world.group());
    const Net first(1);
    EXPECT_TRUE(at::equal(net.parameters()[0], first.parameters()[0]));
    EXPECT_EQ(net.named_buffers()["scale"][1].item<double>(), 7.0);
  });
}

TEST(DataParallelStart, ModulesThatDifferAreRefusedOnEveryRankByName) {
  run_ranks(2, [](world::World& world) {
    torch::nn::Linear net(3, world.rank() == 0 ? 4 : 5);
    EXPECT_THAT([&] { data_parallel(*net, world.group()); },
                testing::ThrowsMessage<Error>(HasSubstr("weight")));
  });
}

TEST(DataParallelStart, AModuleThatLearnsNothingIsRefused) {
  run_ranks(1, [](world::World& world) {
    torch::nn::Module empty;
    EXPECT_THAT([&] { data_parallel(empty, world.group()); },
                testing::ThrowsMessage<Error>(HasSubstr("requires a gradient")));
  });
}

TEST(DataParallelStart, TheFirstBucketIsNoLargerThanTheOthers) {
  run_ranks(1, [](world::World& world) {
    Net net;
    EXPECT_EQ(data_parallel(net, world.group()).buckets().buckets.size(), 1u);
    const auto replicas = data_parallel(net, world.group(), {.bucket_bytes = 16});
    EXPECT_EQ(replicas.buckets().buckets.size(), 4u) << "one per parameter";
  });
}

TEST(DataParallelAccumulation, CommunicatesInTheLastMicroBatchOnly) {
  Net reference;
  (mean_loss(reference, 0, 4) + mean_loss(reference, 4, 8)).backward();
  run_ranks(2, [&](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group());
    const int64_t begin = world.rank() * 2;
    const uint64_t before = world.group().sequence();
    {
      const auto guard = replicas.accumulate();
      mean_loss(net, begin, begin + 2).backward();
    }
    EXPECT_EQ(world.group().sequence(), before);
    mean_loss(net, 4 + begin, 4 + begin + 2).backward();
    expect_close(net.parameters()[0].grad(), reference.parameters()[0].grad());
  });
}

TEST(DataParallelUnused, AParameterUsedOnOneRankOnlyHasItsShareOnAll) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group());
    at::Tensor loss = net.first->weight.sum();
    if (world.rank() == 1) loss = loss + 4 * net.second->weight.sum();
    loss.backward();
    EXPECT_TRUE(at::equal(net.second->weight.grad(), torch::full({2, 5}, 2.0, torch::kFloat64)));
    EXPECT_FALSE(net.second->bias.grad().defined()) << "unused everywhere";
  });
}

TEST(DataParallelUnused, ARankWithoutABackwardTakesPartByFinish) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group());
    if (world.rank() == 0) {
      net.first->weight.sum().backward();
    } else {
      replicas.finish();
    }
    EXPECT_TRUE(at::equal(net.first->weight.grad(), torch::full({5, 3}, 0.5, torch::kFloat64)));
  });
}

TEST(DataParallelZeroGrad, BothKindsGiveTheSameGradientsStepAfterStep) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group());
    at::Tensor first;
    for (const bool to_none : {true, false, true, false}) {
      net.zero_grad(to_none);
      mean_loss(net, world.rank() * 4, world.rank() * 4 + 4).backward();
      const at::Tensor gradient = net.first->weight.grad();
      if (!first.defined()) first = gradient.clone();
      EXPECT_TRUE(at::equal(gradient, first));
    }
  });
}

TEST(DataParallelZeroGrad, AnOptimizerOfTorchMayClearAndStep) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group());
    torch::optim::SGD optimizer(net.parameters(), .5);
    const at::Tensor before = net.first->bias.detach().clone();
    for (const bool to_none : {true, false}) {
      optimizer.zero_grad(to_none);
      net.first->bias.sum().backward();
      optimizer.step();
    }
    expect_close(before - net.first->bias.detach(), torch::ones({5}, torch::kFloat64));
  });
}

TEST(DataParallelGradients, LieInOneFlatTensorOfTheHeap) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group());
    mean_loss(net, 0, 8).backward();
    const at::Tensor flat = replicas.flat_gradients();
    EXPECT_TRUE(world.heap().contains(flat));
    const int64_t offset = replicas.buckets().flat.offsets[0];
    EXPECT_EQ(net.parameters()[0].grad().data_ptr(), flat.slice(0, offset).data_ptr());
    EXPECT_EQ(offset % 64, 0);
  });
}

TEST(DataParallelGradients, ASparseOneIsServed) {
  run_ranks(2, [](world::World& world) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    auto replicas = data_parallel(*table, world.group());
    table(torch::full({1}, world.rank(), torch::kLong)).sum().backward();
    const at::Tensor expected = torch::tensor({{.5f, .5f}, {.5f, .5f}, {0.f, 0.f}, {0.f, 0.f}});
    EXPECT_TRUE(at::equal(table->weight.grad(), expected));
  });
}

TEST(DataParallelGradients, ANonContiguousOneIsServed) {
  run_ranks(2, [](world::World& world) {
    struct Plain : torch::nn::Module {
      at::Tensor weight = register_parameter("weight", torch::ones({2, 3}));
    } net;
    auto replicas = data_parallel(net, world.group());
    const at::Tensor factor = torch::arange(6, torch::kFloat).view({3, 2});
    (net.weight.t() * factor).sum().backward();
    EXPECT_TRUE(at::equal(net.weight.grad(), factor.t()));
  });
}

TEST(DataParallelWeights, WeighTheRanks) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group(), {.average = Average::kWeighted});
    replicas.set_weight(world.rank() == 0 ? 1 : 3);
    (net.first->weight.sum() * (world.rank() == 0 ? 8.0 : 4.0)).backward();
    // (1 * 8 + 3 * 4) / (1 + 3)
    EXPECT_TRUE(at::equal(net.first->weight.grad(), torch::full({5, 3}, 5.0, torch::kFloat64)));
  });
}

TEST(DataParallelWeights, AreRefusedWhereTheyAreZeroOnAllRanks) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group(), {.average = Average::kWeighted});
    replicas.set_weight(0);
    EXPECT_THAT([&] { net.first->weight.sum().backward(); },
                testing::ThrowsMessage<std::exception>(HasSubstr("weights of all ranks are 0")));
  });
}

TEST(DataParallelWeights, AreRefusedWithoutAWeightedAverage) {
  run_ranks(1, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group());
    EXPECT_THROW(replicas.set_weight(2), Error);
  });
}

TEST(DataParallelCheck, OneFlippedBitIsFoundWithTensorAndRank) {
  run_ranks(3, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group(), {.check_every = 2});
    mean_loss(net, 0, 8).backward();
    if (world.rank() == 1) {
      auto* bits = reinterpret_cast<uint64_t*>(net.second->weight.data_ptr<double>());
      bits[3] ^= 1;
    }
    net.zero_grad();
    EXPECT_THAT([&] { mean_loss(net, 0, 8).backward(); },
                testing::ThrowsMessage<std::exception>(
                    testing::AllOf(HasSubstr("second.weight"), HasSubstr("ranks 1"))));
  });
}

TEST(DataParallelLifetime, HooksEndWithTheHandle) {
  run_ranks(2, [](world::World& world) {
    Net net;
    { auto replicas = data_parallel(net, world.group()); }
    const uint64_t before = world.group().sequence();
    mean_loss(net, 0, 8).backward();
    EXPECT_EQ(world.group().sequence(), before);
  });
}

TEST(DataParallelMemory, TheHeapIsStillAfterTheSecondStep) {
  run_ranks(2, [](world::World& world) {
    Net net;
    auto replicas = data_parallel(net, world.group());
    size_t after_two = 0;
    for (int step = 0; step < 6; ++step) {
      net.zero_grad();
      mean_loss(net, 0, 8).backward();
      const size_t peak = world.heap().peak_bytes();
      if (step == 1) after_two = peak;
      if (step > 1) {
        EXPECT_EQ(peak, after_two);
      }
    }
  });
}

/// When the first call that moved as many bytes had ended, or 0.
int64_t first_reduction_ns(const trace::Recorder& recorder, int64_t bytes) {
  for (const trace::Event& event : recorder.events()) {
    if (event.category == trace::Category::kCommunication && event.bytes >= bytes) {
      return event.end_ns;
    }
  }
  return 0;
}

TEST(DataParallelOverlap, TheFirstBucketIsReducedBeforeTheLastHook) {
  run_ranks(2, [](world::World& world) {
    std::vector<torch::nn::Linear> layers;
    torch::nn::Sequential net;
    for (int i = 0; i < 4; ++i) {
      layers.emplace_back(64, 64);
      net->push_back(layers.back());
    }
    const int64_t layer_bytes = 65 * 64 * 4;
    auto replicas = data_parallel(*net, world.group(),
                                  {.bucket_bytes = layer_bytes, .first_bucket_bytes = layer_bytes});
    const at::Tensor first = layers[0](torch::ones({2, 64}));
    // Between the backward of the later layers and that of the first: all ranks have launched their
    // buckets by the first barrier, and waits drive them.
    const comm::Group side = world.group().subgroup({0, 1}, "side");
    first.register_hook([&](const at::Tensor&) {
      for (int i = 0; i < 3; ++i) comm::barrier(side);
    });
    at::Tensor x = first;
    for (int i = 1; i < 4; ++i) x = layers[i](x);
    int64_t last_hook_ns = 0;
    layers[0]->weight.register_hook([&](const at::Tensor&) { last_hook_ns = base::now_ns(); });
    x.sum().backward();
    const int64_t reduced_ns = first_reduction_ns(*world.recorder(), layer_bytes);
    ASSERT_GT(reduced_ns, 0);
    EXPECT_LT(reduced_ns, last_hook_ns);
  });
}

}  // namespace
}  // namespace hanji::parallel
