#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/c10d/backend.h"
#include "hanji/comm/c10d/group.h"
#include "hanji/comm/internal/test_ranks.h"

namespace hanji::comm {
namespace {

using internal::run_ranks;
using schedule::ReduceOp;
using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;

/// Ranks as threads, each with its group as a c10d backend.
void run_backends(int ranks, const std::function<void(const BackendPtr&)>& body) {
  GroupOptions options;
  options.progress = Progress::kThread;
  run_ranks(
      ranks, [&](const Group& group) { body(c10d::make_backend(group)); }, options);
}

TEST(C10dBackend, ReducesGathersAndBroadcasts) {
  run_backends(2, [](const BackendPtr& backend) {
    const int rank = backend->getRank();
    std::vector<at::Tensor> tensors{at::full({5}, rank + 1.0)};
    backend->allreduce(tensors)->wait();
    EXPECT_TRUE(at::equal(tensors[0], at::full({5}, 3.0)));

    std::vector<std::vector<at::Tensor>> outputs{{at::zeros({2, 2}), at::zeros({2, 2})}};
    std::vector<at::Tensor> inputs{at::full({2, 2}, rank + 1.0).t()};
    backend->allgather(outputs, inputs)->wait();
    EXPECT_TRUE(at::equal(outputs[0][1], at::full({2, 2}, 2.0)));

    std::vector<at::Tensor> flags{at::full({3}, rank == 1, at::kBool)};
    ::c10d::BroadcastOptions from_one;
    from_one.rootRank = 1;
    backend->broadcast(flags, from_one)->wait();
    EXPECT_TRUE(flags[0].all().item<bool>());

    at::Tensor output = at::zeros({2});
    at::Tensor input = at::arange(4, at::kFloat);
    backend->_reduce_scatter_base(output, input)->wait();
    EXPECT_EQ(output[0].item<float>(), 4.0f * rank);
    backend->barrier()->wait();
    EXPECT_EQ(backend->getSequenceNumberForGroup(), 5u);
  });
}

TEST(C10dBackend, FuturesCompleteUnwaited) {
  run_backends(2, [](const BackendPtr& backend) {
    std::vector<at::Tensor> tensors{at::ones({1 << 18})};
    const auto future = backend->allreduce(tensors)->getFuture();
    future->wait();
    EXPECT_EQ(future->value().toTensorVector().at(0)[0].item<float>(), 2);
  });
}

TEST(C10dBackend, FailuresReachTheFuture) {
  run_backends(2, [](const BackendPtr& backend) {
    std::vector<at::Tensor> tensors{at::ones({backend->getRank() + 4})};
    const auto work = backend->allreduce(tensors);
    EXPECT_THROW(work->wait(), Error);
    EXPECT_TRUE(work->getFuture()->hasError());
  });
}

TEST(C10dBackend, NeedsAGroupThatMovesItsBytesItself) {
  EXPECT_THROW(c10d::make_backend(Group::alone()), Error);
}

torch::nn::Sequential make_net() {
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Linear(8, 2));
  for (at::Tensor& parameter : net->parameters()) {
    parameter.set_data(at::sin(at::arange(parameter.numel(), at::kFloat)).view(parameter.sizes()));
  }
  return net;
}

/// Gradients of make_net() for the samples of one rank.
std::vector<at::Tensor> gradients_of(torch::nn::Sequential& net, int rank) {
  const at::Tensor x = at::cos(at::arange(12, at::kFloat) + rank).view({3, 4});
  net->forward(x).square().mean().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

TEST(C10dBackend, CarriesTheReducerOfPytorch) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  auto first = make_net();
  auto second = make_net();
  const auto a = gradients_of(first, 0);
  const auto b = gradients_of(second, 1);
  run_backends(2, [&](const BackendPtr& backend) {
    const int rank = backend->getRank();
    auto group = c10::make_intrusive<::c10d::ProcessGroup>(store, rank, 2);
    group->setBackend(c10::kCPU, ::c10d::ProcessGroup::BackendType::CUSTOM, backend);
    group->setDefaultBackend(::c10d::ProcessGroup::BackendType::CUSTOM);
    group->setGroupName("hanji");
    auto net = make_net();
    auto parameters = net->parameters();
    std::vector<std::vector<size_t>> buckets{{2, 3}, {0, 1}};
    ::c10d::Reducer reducer(parameters, buckets, group, std::vector<bool>(4, false), 1 << 20, false,
                            false, {}, 1 << 20, false, false, {});
    reducer.prepare_for_forward();
    reducer.prepare_for_backward({});
    const auto averaged = gradients_of(net, rank);
    for (size_t i = 0; i < averaged.size(); ++i) {
      EXPECT_TRUE(at::equal(averaged[i], a[i] / 2 + b[i] / 2)) << i;
    }
  });
}

TEST(C10dGroup, RunsOverABackendOfTheCaller) {
  run_backends(2, [](const BackendPtr& backend) {
    GroupOptions options;
    options.bits = Bits::kFast;
    const Group group = c10d::make_group(backend, options);
    EXPECT_EQ(group.engine(), "hanji");
    at::Tensor tensor = at::full({9}, group.rank() + 1.0);
    all_reduce(tensor, group, {.op = ReduceOp::kAvg}).wait();
    EXPECT_TRUE(at::equal(tensor, at::full({9}, 1.5)));
    EXPECT_THROW(group.subgroup({0, 1}, "part"), Error);
  });
}

}  // namespace
}  // namespace hanji::comm
