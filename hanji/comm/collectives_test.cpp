#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/internal/routine_cases.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/tree_reduce.h"
#include "hanji/layout/split.h"

namespace hanji::comm {
namespace {

using internal::for_each_case;
using internal::kCounts;
using internal::kPlaces;
using internal::numbers;
using internal::place;
using internal::run_ranks;
using internal::Where;
using schedule::ReduceOp;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks[] = {1, 2, 3, 5};
const c10::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                  at::kInt,    at::kLong,  at::kByte};

TEST(AllReduce, SumHasItsClosedFormOnEveryRank) {
  for_each_case(kRanks, [](const Group& group, int64_t count, Where where) {
    const int n = group.size();
    at::Tensor tensor = place(numbers(count, group.rank()), where, group);
    all_reduce(tensor, group).wait();
    EXPECT_TRUE(at::equal(tensor, numbers(count, 0) * n + n * (n - 1) / 2)) << n << " " << count;
  });
}

TEST(AllReduce, ServesEveryTypeOfTheCore) {
  run_ranks(3, [](const Group& group) {
    for (const c10::ScalarType type : kTypes) {
      at::Tensor tensor = place(numbers(300, group.rank(), type), Where::kHeap, group);
      all_reduce(tensor, group).wait();
      EXPECT_TRUE(at::equal(tensor, (numbers(300, 0) * 3 + 3).to(type))) << type;
    }
  });
}

TEST(AllReduce, AvgMinMaxAndProdHaveTheirClosedForms) {
  run_ranks(3, [](const Group& group) {
    const auto reduced = [&group](ReduceOp op) {
      at::Tensor tensor = place(numbers(100, group.rank()), Where::kMixed, group);
      all_reduce(tensor, group, {.op = op}).wait();
      return tensor;
    };
    const at::Tensor x = numbers(100, 0);
    EXPECT_TRUE(at::equal(reduced(ReduceOp::kAvg), x + 1));
    EXPECT_TRUE(at::equal(reduced(ReduceOp::kMin), x));
    EXPECT_TRUE(at::equal(reduced(ReduceOp::kMax), x + 2));
    EXPECT_TRUE(at::equal(reduced(ReduceOp::kProd), x * (x + 1) * (x + 2)));
  });
}

TEST(AllReduce, SumsFollowThePairwiseTreeWhereverTensorsLie) {
  run_ranks(5, [](const Group& group) {
    for (const int64_t count : kCounts) {
      std::vector<at::Tensor> all;
      for (int rank = 0; rank < 5; ++rank) {
        all.push_back(at::sin(at::arange(count, at::kFloat) * 0.7 + rank) * 1e3);
      }
      const at::Tensor expected = ((all[0] + all[1]) + (all[2] + all[3])) + all[4];
      for (const Where where : kPlaces) {
        at::Tensor tensor = place(all[group.rank()], where, group);
        all_reduce(tensor, group).wait();
        EXPECT_TRUE(at::equal(tensor, expected)) << count;
      }
    }
  });
}

TEST(AllReduce, TellsAutogradThatTheTensorChanged) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = at::ones({4});
    const auto version = tensor._version();
    all_reduce(tensor, group).wait();
    EXPECT_GT(tensor._version(), version);
  });
}

TEST(AllReduce, RefusesWhatItCannotServeAndSaysWhatToDo) {
  const Group group = Group::alone();
  const auto refusal = [&group](at::Tensor tensor) {
    return internal::refusal([&] { all_reduce(tensor, group, {.label = "wte"}).wait(); });
  };
  EXPECT_THAT(refusal(at::Tensor()), HasSubstr("invalid_argument: all_reduce 'wte' "));
  EXPECT_THAT(refusal(at::ones({4, 4}).t()),
              AllOf(HasSubstr("collectives_test.cpp:"), HasSubstr("not contiguous"),
                    HasSubstr("tensor.contiguous()")));
  EXPECT_THAT(refusal(at::ones({4}).to_sparse()),
              AllOf(HasSubstr("unsupported"), HasSubstr("to_dense()")));
  EXPECT_THAT(refusal(at::empty({4}, at::kMeta)),
              AllOf(HasSubstr("unsupported"), HasSubstr("meta"), HasSubstr("engine shm")));
  EXPECT_THAT(refusal(at::ones({4}).requires_grad_() * 2), HasSubstr("tensor.detach()"));
  EXPECT_THAT(refusal(at::ones({4}, at::kShort)), HasSubstr("Short"));
  EXPECT_EQ(refusal(at::ones({4}).requires_grad_()), "accepted");
}

TEST(Broadcast, EveryRankGetsTheRootsBytes) {
  for_each_case(kRanks, [](const Group& group, int64_t count, Where where) {
    const int root = group.size() - 1;
    at::Tensor tensor = place(numbers(count, group.rank()), where, group);
    broadcast(tensor, root, group).wait();
    EXPECT_TRUE(at::equal(tensor, numbers(count, root)));
  });
}

TEST(Broadcast, MovesTypesThatNobodyAdds) {
  run_ranks(2, [](const Group& group) {
    for (const c10::ScalarType type : {at::kBool, at::kShort, at::kComplexFloat}) {
      at::Tensor tensor = numbers(9, group.rank() == 1 ? 1 : 0).to(type);
      broadcast(tensor, 1, group).wait();
      EXPECT_TRUE(at::equal(tensor, numbers(9, 1).to(type))) << type;
    }
  });
}

TEST(Broadcast, RefusesARootOutsideTheGroup) {
  at::Tensor tensor = at::ones({4});
  EXPECT_THROW(broadcast(tensor, 1, Group::alone()).wait(), Error);
}

TEST(AllGather, OutputIsTheInputsInRankOrder) {
  for_each_case(kRanks, [](const Group& group, int64_t count, Where where) {
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < group.size(); ++rank) all.push_back(numbers(count, rank));
    const at::Tensor input = place(all[group.rank()], where, group);
    at::Tensor output = place(at::zeros({count * group.size()}), where, group);
    all_gather(output, input, group).wait();
    EXPECT_TRUE(at::equal(output, at::cat(all)));
  });
}

TEST(AllGather, InPlaceIsLegalAndOtherOverlapIsRefused) {
  run_ranks(2, [](const Group& group) {
    at::Tensor output = place(at::zeros({2000}), Where::kHeap, group);
    at::Tensor mine = output.narrow(0, 1000 * group.rank(), 1000);
    mine.fill_(group.rank() + 1);
    all_gather(output, mine, group).wait();
    EXPECT_EQ(output.sum().item<float>(), 3000);
    EXPECT_THROW(all_gather(output, output.narrow(0, 500, 1000), group).wait(), Error);
    EXPECT_THROW(all_gather(output, at::zeros({999}), group).wait(), Error);
    EXPECT_THROW(all_gather(output, at::zeros({1000}, at::kInt), group).wait(), Error);
  });
}

TEST(ReduceScatter, OutputIsTheSliceOfTheSum) {
  for_each_case(kRanks, [](const Group& group, int64_t count, Where where) {
    const int n = group.size();
    const at::Tensor input = place(numbers(count * n, group.rank()), where, group);
    at::Tensor output = place(at::zeros({count}), where, group);
    reduce_scatter(output, input, group).wait();
    const at::Tensor sum = numbers(count * n, 0) * n + n * (n - 1) / 2;
    EXPECT_TRUE(at::equal(output, sum.narrow(0, count * group.rank(), count)));
  });
}

TEST(ReduceScatter, InPlaceIsLegal) {
  run_ranks(3, [](const Group& group) {
    at::Tensor input = place(numbers(3000, group.rank()), Where::kHeap, group);
    at::Tensor output = input.narrow(0, 1000 * group.rank(), 1000);
    reduce_scatter(output, input, group).wait();
    EXPECT_TRUE(at::equal(output, (numbers(3000, 0) * 3 + 3).narrow(0, 1000 * group.rank(), 1000)));
  });
}

TEST(Barrier, NobodyLeavesBeforeEverybodyCame) {
  std::atomic<int> came{0};
  run_ranks(4, [&came](const Group& group) {
    for (int round = 1; round <= 20; ++round) {
      ++came;
      barrier(group);
      EXPECT_GE(came.load(), 4 * round);
      barrier(group);
    }
  });
}

/// The partial sums of `rank`: whole numbers per grain, so any order of summation is exact.
at::Tensor partials_of(const schedule::GrainTree& tree, int rank, int64_t stride) {
  const auto& partials = tree.ranks[rank].partials;
  at::Tensor parts = at::zeros({static_cast<int64_t>(partials.size()), stride});
  for (size_t i = 0; i < partials.size(); ++i) {
    for (int64_t grain = partials[i].begin; grain < partials[i].end; ++grain) {
      parts[static_cast<int64_t>(i)] += at::arange(stride, at::kFloat) * (grain + 1);
    }
  }
  return parts;
}

TEST(TreeAllReduce, HasTheBitsOfOneRankInEveryType) {
  const auto all = internal::routine_cases();
  const auto tree = std::ranges::find(all, "tree over grains", &internal::RoutineCase::name);
  ASSERT_NE(tree, all.end());
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [&](const Group& group) {
      for (const int64_t count : internal::kCounts) tree->check(group, count);
    });
  }
}

TEST(TreeAllReduce, SumsUnevenSharesOfGrainsInHeapAndPrivate) {
  for (const int ranks : {1, 2, 4}) {
    const std::vector<double> weights = {.4, .3, .2, .1};
    const auto owners = layout::split_grains(20, ranks, std::span(weights).first(ranks)).or_throw();
    const schedule::GrainTree tree = schedule::grain_tree(20, owners);
    run_ranks(ranks, [&tree](const Group& group) {
      for (const Where where : kPlaces) {
        const at::Tensor parts = place(partials_of(tree, group.rank(), 1100), where, group);
        at::Tensor output = place(at::zeros({1000}), where, group);
        tree_all_reduce(parts, output, tree, group).wait();
        EXPECT_TRUE(at::equal(output, at::arange(1000, at::kFloat) * 210));
      }
    });
  }
}

TEST(TreeAllReduce, RefusesPartsThatAreNotTheTrees) {
  const Group group = Group::alone();
  const std::vector<layout::Range> owners = {{0, 4}};
  const schedule::GrainTree tree = schedule::grain_tree(4, owners);
  at::Tensor output = at::zeros({10});
  EXPECT_THROW(tree_all_reduce(at::zeros({0, 10}), output, tree, group).wait(), Error);
  EXPECT_THROW(tree_all_reduce(at::zeros({1, 9}), output, tree, group).wait(), Error);
  EXPECT_THROW(tree_all_reduce(at::zeros({10}), output, tree, group).wait(), Error);
}

}  // namespace
}  // namespace hanji::comm
