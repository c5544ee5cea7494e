#include <ATen/ATen.h>
#include <gmock/gmock.h>

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
    EXPECT_THROW(work->wait(), c10::DistBackendError);
    EXPECT_TRUE(work->getFuture()->hasError());
  });
}

using Lists = std::vector<std::vector<at::Tensor>>;

TEST(C10dBackend, GathersScattersAndExchanges) {
  run_backends(3, [](const BackendPtr& backend) {
    const int rank = backend->getRank();
    std::vector<at::Tensor> mine{at::full({2}, rank)};
    Lists gathered;
    if (rank == 1) gathered.push_back({at::zeros({2}), at::zeros({2}), at::zeros({2})});
    ::c10d::GatherOptions to_one;
    to_one.rootRank = 1;
    backend->gather(gathered, mine, to_one)->wait();
    if (rank == 1) {
      EXPECT_EQ(gathered[0][2][1].item<float>(), 2);
    }

    Lists scattered;
    if (rank == 0) scattered.push_back({at::full({2}, 5), at::full({2}, 6), at::full({2}, 7)});
    backend->scatter(mine, scattered)->wait();
    EXPECT_EQ(mine[0][0].item<float>(), 5 + rank);

    // Rank r gives r + 1 rows to each rank and so gets 1, 2 and 3.
    at::Tensor input = at::full({3 * (rank + 1), 2}, rank, at::kShort);
    at::Tensor output = at::zeros({6, 2}, at::kShort);
    std::vector<int64_t> given(3, rank + 1);
    std::vector<int64_t> expected{1, 2, 3};
    backend->alltoall_base(output, input, expected, given)->wait();
    EXPECT_EQ(output.sum().item<int64_t>(), 2 * (0 + 2 * 1 + 3 * 2));

    expected[0] = rank == 2 ? 2 : 1;  // which is one row too many, and so says every rank
    output = at::zeros({rank == 2 ? 7 : 6, 2}, at::kShort);
    EXPECT_THAT([&] { backend->alltoall_base(output, input, expected, given); },
                testing::ThrowsMessage<Error>(testing::HasSubstr("rank 0 sends 2 elements")));
  });
}

TEST(C10dBackend, CopiesWhatTheEngineCannotReachOrAdd) {
  run_backends(2, [](const BackendPtr& backend) {
    for (const auto type : {at::kChar, at::kShort, at::kBool, at::kComplexFloat, at::kByte}) {
      std::vector<at::Tensor> turned{at::ones({3, 2}, type).t()};
      backend->allreduce(turned)->wait();
      EXPECT_TRUE(at::equal(turned[0], at::ones({2, 3}, type).add(at::ones({2, 3}, type)))) << type;
    }
    std::vector<at::Tensor> least{at::full({4}, backend->getRank() - 1, at::kChar)};
    ::c10d::AllreduceOptions by_min;
    by_min.reduceOp = ::c10d::ReduceOp::MIN;
    backend->allreduce(least, by_min)->wait();
    EXPECT_EQ(least[0][2].item<int>(), -1);
    std::vector<at::Tensor> turns{at::ones({2}, at::kComplexFloat)};
    EXPECT_THROW(backend->allreduce(turns, by_min), Error);

    const at::Tensor place = at::full({1, 1}, backend->getRank(), at::kLong);
    std::vector<at::Tensor> sparse{at::sparse_coo_tensor(place, at::ones({1}), {2})};
    backend->allreduce(sparse)->wait();
    EXPECT_TRUE(at::equal(sparse[0].to_dense(), at::ones({2})));
  });
}

TEST(C10dBackend, ReceivesFromWhoeverSends) {
  run_backends(3, [](const BackendPtr& backend) {
    const int rank = backend->getRank();
    if (rank != 0) {
      std::vector<at::Tensor> tensors{at::full({3}, rank, at::kFloat)};
      backend->send(tensors, 0, 7)->wait();
      return;
    }
    std::vector<at::Tensor> first{at::zeros({3})};
    std::vector<at::Tensor> second{at::zeros({3})};
    const auto works = {backend->recvAnysource(first, 7), backend->recvAnysource(second, 7)};
    int sources = 0;
    for (const auto& work : works) {
      work->getFuture()->wait();  // completes unwaited
      sources += work->sourceRank();
    }
    EXPECT_EQ(sources, 3);
    EXPECT_EQ((first[0] + second[0])[1].item<float>(), 3);
  });
}

TEST(C10dBackend, JoinsWhatWasCoalesced) {
  run_backends(2, [](const BackendPtr& backend) {
    const int peer = 1 - backend->getRank();
    std::vector<at::Tensor> mine{at::full({3}, peer, at::kFloat)};
    std::vector<at::Tensor> theirs{at::zeros({3})};
    backend->startCoalescing();
    backend->send(mine, peer, 0);
    backend->recv(theirs, peer, 0);
    backend->endCoalescing()->wait();
    EXPECT_EQ(theirs[0][0].item<float>(), backend->getRank());
  });
}

TEST(C10dBackend, MonitoredBarrierNamesWhoDidNotCome) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  GroupOptions options;
  options.progress = Progress::kThread;
  run_ranks(
      3,
      [&](const Group& group) {
        const auto backend = c10d::make_backend(group, {.store = store});
        ::c10d::BarrierOptions soon;
        soon.timeout = std::chrono::seconds(20);
        backend->monitoredBarrier(soon, false);
        soon.timeout = std::chrono::milliseconds(50);
        if (group.rank() == 0) {
          EXPECT_THAT([&] { backend->monitoredBarrier(soon, true); },
                      testing::ThrowsMessage<Error>(testing::HasSubstr("Ranks 1, 2 failed")));
        }
        backend->barrier()->wait();  // the group lives on
      },
      options);
}

TEST(C10dBackend, ACallsOwnLimitEndsTheGroupForAll) {
  run_backends(2, [](const BackendPtr& backend) {
    if (backend->getRank() == 1) return;
    ::c10d::BarrierOptions soon;
    soon.timeout = std::chrono::milliseconds(20);
    const auto work = backend->barrier(soon);
    EXPECT_THROW(work->wait(), c10::DistBackendError);
    EXPECT_FALSE(work->isSuccess());
    backend->shutdown();
    EXPECT_THROW(backend->barrier(), Error);
  });
}

TEST(C10dBackend, AllocatesWherePeersReach) {
  GroupOptions options;
  options.progress = Progress::kThread;
  run_ranks(
      2,
      [](const Group& group) {
        const auto backend = c10d::make_backend(group);
        ASSERT_TRUE(backend->supportsTensorAlloc(-1));
        std::vector<at::Tensor> tensors{backend->allocateTensor(5, at::kDouble)};
        EXPECT_TRUE(group.heap().contains(tensors[0]));
        tensors[0].fill_(group.rank() + 1);
        backend->allreduce(tensors)->wait();
        EXPECT_TRUE(at::equal(tensors[0], at::full({5}, 3, at::kDouble)));
      },
      options);
}

TEST(C10dBackend, IsSplitOnlyWhereItCanMeet) {
  run_backends(2, [](const BackendPtr& backend) {
    EXPECT_FALSE(backend->supportsSplitting());
    const auto store = c10::make_intrusive<::c10d::HashStore>();
    EXPECT_EQ(backend->split(store, {1 - backend->getRank()}, {}), nullptr);
    EXPECT_THROW(backend->split(store, {0, 1}, {}), Error);
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
