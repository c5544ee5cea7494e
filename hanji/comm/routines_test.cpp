// reduce, gather, scatter, all_to_all and everything uneven, on tensors.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/scatter.h"

namespace hanji::comm {
namespace {

using internal::for_each_case;
using internal::kPlaces;
using internal::numbers;
using internal::place;
using internal::refusal;
using internal::run_ranks;
using internal::Where;
using schedule::ReduceOp;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRoutineRanks[] = {1, 2, 3, 4, 5};
const c10::ScalarType kRoutineTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                         at::kInt,    at::kLong,  at::kByte};
const c10::ScalarType kMovedTypes[] = {at::kDouble, at::kFloat,        at::kBFloat16, at::kHalf,
                                       at::kInt,    at::kLong,         at::kByte,     at::kBool,
                                       at::kShort,  at::kComplexDouble};

std::vector<int64_t> uneven(int64_t count, int size) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back((rank * 3 + 1) % 4 * count / 3);
  return counts;
}

std::vector<int64_t> uneven_pairs(int64_t count, int size) {
  std::vector<int64_t> counts;
  for (int i = 0; i < size * size; ++i) counts.push_back((i * 3 + 1) % 4 * count / 3);
  return counts;
}

int64_t sum_of(const std::vector<int64_t>& counts, size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<int64_t>(end), int64_t{0});
}

TEST(Reduce, SumsOnTheRootAndLeavesTheOthersAlone) {
  for_each_case(kRoutineRanks, [](const Group& group, int64_t count, Where where) {
    const int n = group.size();
    const int root = n / 2;
    const at::Tensor sum = numbers(count, 0) * n + n * (n - 1) / 2;
    at::Tensor tensor = place(numbers(count, group.rank()), where, group);
    reduce(tensor, root, group).wait();
    const bool at_root = group.rank() == root;
    EXPECT_TRUE(at::equal(tensor, at_root ? sum : numbers(count, group.rank()))) << n;
    const at::Tensor input = place(numbers(count, group.rank()), where, group);
    at::Tensor output;
    if (at_root) output = place(at::zeros({count}), where, group);
    reduce(output, input, root, group).wait();
    EXPECT_TRUE(at::equal(input, numbers(count, group.rank())));
    if (at_root) {
      EXPECT_TRUE(at::equal(output, sum));
    }
  });
}

TEST(Reduce, ServesEveryTypeAndOp) {
  run_ranks(3, [](const Group& group) {
    for (const c10::ScalarType type : kRoutineTypes) {
      at::Tensor tensor = place(numbers(300, group.rank(), type), Where::kHeap, group);
      reduce(tensor, 1, group).wait();
      const at::Tensor due =
          group.rank() == 1 ? (numbers(300, 0) * 3 + 3).to(type) : numbers(300, group.rank(), type);
      EXPECT_TRUE(at::equal(tensor, due)) << type;
    }
    at::Tensor largest = numbers(300, group.rank());
    reduce(largest, 0, group, {.op = ReduceOp::kMax}).wait();
    if (group.rank() == 0) {
      EXPECT_TRUE(at::equal(largest, numbers(300, 2)));
    }
    at::Tensor mean = numbers(300, group.rank());
    reduce(mean, 2, group, {.op = ReduceOp::kAvg}).wait();
    if (group.rank() == 2) {
      EXPECT_TRUE(at::equal(mean, numbers(300, 1)));
    }
  });
}

TEST(Reduce, CombinesBitsOfIntegersAndRefusesThoseOfFloats) {
  run_ranks(3, [](const Group& group) {
    for (const c10::ScalarType type : {at::kInt, at::kLong, at::kByte}) {
      const auto reduced = [&](ReduceOp op) {
        at::Tensor tensor = (numbers(100, 0) * 8 + (1 << group.rank())).to(type);
        reduce(tensor, 0, group, {.op = op}).wait();
        return tensor;
      };
      const at::Tensor high = numbers(100, 0) * 8;
      const at::Tensor all = reduced(ReduceOp::kBitOr);
      const at::Tensor common = reduced(ReduceOp::kBitAnd);
      const at::Tensor odd = reduced(ReduceOp::kBitXor);
      if (group.rank() != 0) continue;
      EXPECT_TRUE(at::equal(all, (high + 7).to(type)));
      EXPECT_TRUE(at::equal(common, high.to(type)));
      EXPECT_TRUE(at::equal(odd, (high + 7).to(type)));
    }
    at::Tensor floats = at::ones({4});
    EXPECT_THROW(reduce(floats, 0, group, {.op = ReduceOp::kBitOr}).wait(), Error);
  });
}

TEST(Gather, TheRootGetsTheInputsInRankOrder) {
  for_each_case(kRoutineRanks, [](const Group& group, int64_t count, Where where) {
    const int root = group.size() - 1;
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < group.size(); ++rank) all.push_back(numbers(count, rank));
    const at::Tensor input = place(all[group.rank()], where, group);
    at::Tensor output;
    if (group.rank() == root) output = place(at::zeros({count * group.size()}), where, group);
    gather(output, input, root, group).wait();
    if (group.rank() == root) {
      EXPECT_TRUE(at::equal(output, at::cat(all)));
    }
  });
}

TEST(Gather, UnevenSharesLieOneAfterAnother) {
  for_each_case(kRoutineRanks, [](const Group& group, int64_t count, Where where) {
    const auto counts = uneven(count, group.size());
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < group.size(); ++rank) all.push_back(numbers(counts[rank], rank));
    const at::Tensor input = place(all[group.rank()], where, group);
    at::Tensor output = place(at::zeros({sum_of(counts, counts.size())}), where, group);
    gather(output, input, counts, 0, group).wait();
    const at::Tensor due = at::cat(all);
    EXPECT_TRUE(at::equal(output, group.rank() == 0 ? due : at::zeros_like(due)));
    all_gather(output, input, counts, group).wait();
    EXPECT_TRUE(at::equal(output, due));
  });
}

TEST(Scatter, EveryRankGetsItsSliceOfTheRootsInput) {
  for_each_case(kRoutineRanks, [](const Group& group, int64_t count, Where where) {
    const int root = group.size() / 2;
    const at::Tensor all = numbers(count * group.size(), 5);
    at::Tensor input;
    if (group.rank() == root) input = place(all, where, group);
    at::Tensor output = place(at::zeros({count}), where, group);
    scatter(output, input, root, group).wait();
    EXPECT_TRUE(at::equal(output, all.narrow(0, count * group.rank(), count)));
  });
}

TEST(Scatter, UnevenSharesGoToTheirRanks) {
  for_each_case(kRoutineRanks, [](const Group& group, int64_t count, Where where) {
    const auto counts = uneven(count, group.size());
    const int64_t begin = sum_of(counts, group.rank());
    const int64_t total = sum_of(counts, counts.size());
    const at::Tensor input = place(numbers(total, group.rank()), where, group);
    at::Tensor output = place(at::zeros({counts[group.rank()]}), where, group);
    scatter(output, input, counts, 0, group).wait();
    EXPECT_TRUE(at::equal(output, numbers(total, 0).narrow(0, begin, counts[group.rank()])));
    reduce_scatter(output, input, counts, group).wait();
    const int n = group.size();
    const at::Tensor sum = numbers(total, 0) * n + n * (n - 1) / 2;
    EXPECT_TRUE(at::equal(output, sum.narrow(0, begin, counts[group.rank()])));
  });
}

TEST(AllToAll, SliceRGoesToRankR) {
  for_each_case(kRoutineRanks, [](const Group& group, int64_t count, Where where) {
    const int64_t n = group.size();
    std::vector<at::Tensor> due;
    for (int peer = 0; peer < n; ++peer) {
      due.push_back(numbers(n * count, peer).narrow(0, count * group.rank(), count));
    }
    at::Tensor input = place(numbers(n * count, group.rank()), where, group);
    at::Tensor output = place(at::zeros({n * count}), where, group);
    all_to_all(output, input, group).wait();
    EXPECT_TRUE(at::equal(output, at::cat(due)));
    EXPECT_TRUE(at::equal(input, numbers(n * count, group.rank())));
    all_to_all(input, input, group).wait();
    EXPECT_TRUE(at::equal(input, at::cat(due))) << "in place";
  });
}

TEST(AllToAll, UnevenSlicesFollowTheCounts) {
  for_each_case(kRoutineRanks, [](const Group& group, int64_t count, Where where) {
    const int n = group.size();
    const auto counts = uneven_pairs(count, n);
    const auto row = [&](int rank) {
      return std::vector<int64_t>(counts.begin() + rank * n, counts.begin() + (rank + 1) * n);
    };
    EXPECT_EQ(exchange_counts(row(group.rank()), group), counts);
    std::vector<at::Tensor> due;
    for (int peer = 0; peer < n; ++peer) {
      const int64_t begin = sum_of(row(peer), group.rank());
      due.push_back(numbers(sum_of(row(peer), n), peer).narrow(0, begin, row(peer)[group.rank()]));
    }
    const at::Tensor expected = at::cat(due);
    const at::Tensor input =
        place(numbers(sum_of(row(group.rank()), n), group.rank()), where, group);
    at::Tensor output = place(at::zeros_like(expected), where, group);
    all_to_all(output, input, counts, group).wait();
    EXPECT_TRUE(at::equal(output, expected));
  });
}

TEST(MovingRoutines, ServeEveryTypeThatHasBytes) {
  run_ranks(3, [](const Group& group) {
    for (const c10::ScalarType type : kMovedTypes) {
      const int rank = group.rank();
      const at::Tensor mine = numbers(90, rank, type);
      at::Tensor gathered = at::zeros({270}, type);
      gather(gathered, mine, 0, group).wait();
      at::Tensor back = at::zeros({90}, type);
      scatter(back, gathered, 0, group).wait();
      EXPECT_TRUE(at::equal(back, mine)) << type;
      const std::vector<int64_t> counts = {10, 0, 80};
      at::Tensor part = at::zeros({counts[rank]}, type);
      scatter(part, mine, counts, 2, group).wait();
      const int64_t begin = rank == 2 ? 10 : 0;
      EXPECT_TRUE(at::equal(part, numbers(90, 2, type).narrow(0, begin, counts[rank]))) << type;
      at::Tensor exchanged = at::zeros({90}, type);
      all_to_all(exchanged, mine, group).wait();
      all_to_all(exchanged, exchanged, group).wait();
      EXPECT_TRUE(at::equal(exchanged, mine)) << type;
    }
  });
}

TEST(InPlace, TheRootsShareMayLieInItsWideTensor) {
  run_ranks(3, [](const Group& group) {
    for (const Where where : kPlaces) {
      const std::vector<int64_t> counts = {500, 0, 1500};
      const int rank = group.rank();
      at::Tensor wide = place(at::zeros({2000}), where, group);
      at::Tensor mine = wide.narrow(0, sum_of(counts, rank), counts[rank]);
      mine.fill_(rank + 1);
      gather(wide, mine, counts, 2, group).wait();
      if (rank == 2) {
        EXPECT_EQ(wide.sum().item<float>(), 500 + 3 * 1500);
        wide.fill_(7);
      }
      scatter(mine, wide, counts, 2, group).wait();
      EXPECT_TRUE(at::equal(mine, at::full({counts[rank]}, 7.0f)));
      barrier(group);
    }
    at::Tensor wide = at::zeros({3000});
    if (group.rank() == 1) {
      EXPECT_THROW(gather(wide, wide.narrow(0, 500, 1000), 1, group).wait(), Error);
    }
  });
}

TEST(Repeated, CallsOfOneCountWithOtherSharesEachGetTheirOwn) {
  run_ranks(2, [](const Group& group) {
    const int rank = group.rank();
    const std::vector<std::vector<int64_t>> shares = {{600, 600}, {200, 1000}, {1000, 200}};
    for (int round = 0; round < 6; ++round) {
      const auto& counts = shares[round % 3];
      const at::Tensor input = at::full({counts[rank]}, static_cast<float>(rank + 1));
      at::Tensor output = at::zeros({1200});
      all_gather(output, input, counts, group).wait();
      EXPECT_EQ(output.sum().item<float>(), static_cast<float>(counts[0] + 2 * counts[1]));
      at::Tensor wide = at::zeros({2400});
      all_gather(wide, at::full({1200}, static_cast<float>(rank + 1)), group).wait();
      EXPECT_EQ(wide.sum().item<float>(), 3600);
      at::Tensor slices = at::arange(1200, at::kFloat);
      all_to_all(output, slices, group).wait();
      EXPECT_TRUE(at::equal(slices, at::arange(1200, at::kFloat)));
      all_to_all(slices, slices, group).wait();
      EXPECT_TRUE(at::equal(slices, output));
    }
  });
}

TEST(Refusals, SayWhatDoesNotFit) {
  const Group group = Group::alone();
  at::Tensor a = at::zeros({10});
  at::Tensor b = at::zeros({10});
  at::Tensor undefined;
  EXPECT_THAT(refusal([&] { (void)reduce(a, 1, group); }),
              HasSubstr("invalid_argument: reduce: root 1 is not a rank of group world of 1"));
  EXPECT_THAT(refusal([&] { (void)gather(a, b, -1, group); }), HasSubstr("root -1"));
  EXPECT_THAT(refusal([&] { (void)gather(undefined, b, 0, group); }),
              HasSubstr("the output is an undefined tensor"));
  EXPECT_THAT(refusal([&] { (void)scatter(a, undefined, 0, group); }),
              HasSubstr("the input is an undefined tensor"));
  EXPECT_THAT(refusal([&] {
                (void)gather(a, b, {5, 5}, 0, group);
              }),
              HasSubstr("gather: 2 counts are given and 1 needed, one for each rank"));
  EXPECT_THAT(refusal([&] { (void)gather(a, b, {9}, 0, group); }),
              HasSubstr("the input has 10 elements and must have 9"));
  EXPECT_THAT(refusal([&] { (void)scatter(a, b, {-1}, 0, group); }),
              HasSubstr("a count of -1 elements is out of range"));
  EXPECT_THAT(refusal([&] {
                (void)all_to_all(a, b, {10, 0}, group);
              }),
              HasSubstr("one for each pair of ranks"));
  EXPECT_THAT(refusal([&] { (void)all_to_all(a, a, {10}, group); }),
              HasSubstr("cannot change places in one buffer"));
  EXPECT_THAT(refusal([&] {
                (void)exchange_counts({1, 2}, group);
              }),
              HasSubstr("2 counts are given for 1 ranks"));
  EXPECT_THAT(refusal([&] { (void)reduce(a, b.to(at::kInt), 0, group); }),
              HasSubstr("they must agree"));
}

TEST(Disagreement, AboutCountsIsNamedOnEveryRankBeforeAByteIsUsed) {
  for (const Where where : {Where::kHeap, Where::kPrivate}) {
    run_ranks(3, [where](const Group& group) {
      // Rank 1 has rows as the others think; it is wrong about the shares of ranks 0 and 2.
      const std::vector<int64_t> counts = group.rank() == 1 ? std::vector<int64_t>{300, 300, 900}
                                                            : std::vector<int64_t>{900, 300, 300};
      const at::Tensor input = place(at::ones({counts[group.rank()]}), where, group);
      at::Tensor output = place(at::zeros({1500}), where, group);
      Work work = all_gather(output, input, counts, group);
      EXPECT_THAT(refusal([&] { work.wait(); }),
                  AllOf(HasSubstr("mismatch: group world: operation 1"), HasSubstr("rank 1 calls"),
                        HasSubstr("the counts per rank or the step lists differ"),
                        HasSubstr("routines_test.cpp")));
      EXPECT_EQ(output.sum().item<float>(), 0);
    });
  }
}

TEST(Disagreement, AboutTheRootIsNamed) {
  run_ranks(2, [](const Group& group) {
    at::Tensor tensor = at::ones({100});
    EXPECT_THAT(refusal([&] { reduce(tensor, group.rank(), group).wait(); }),
                HasSubstr("the root is 1 there and 0 here"));
    EXPECT_EQ(tensor.sum().item<float>(), 100);
  });
}

}  // namespace
}  // namespace hanji::comm
