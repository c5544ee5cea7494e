// What prepared calls promise beside the plain function's result (internal/routine_cases).
#include "hanji/comm/prepare.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/coalesced.h"
#include "hanji/comm/internal/choice_table.h"
#include "hanji/comm/internal/routine_cases.h"
#include "hanji/comm/internal/test_ranks.h"

namespace hanji::comm {
namespace {

using namespace std::chrono_literals;
using internal::numbers;
using internal::refusal;
using internal::run_ranks;
using schedule::Routine;
using testing::AllOf;
using testing::HasSubstr;

TEST(Prepared, GivesThePlainCallsBitsAndBytes) {
  const auto all = internal::routine_cases();
  const auto prepared = std::ranges::find(all, "prepared", &internal::RoutineCase::name);
  ASSERT_NE(prepared, all.end());
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](const Group& group) {
      for (const int64_t count : internal::kCounts) prepared->check(group, count);
    });
  }
}

TEST(Prepared, MovesTensorsOfTheHeapInPlaceAndKeepsNone) {
  run_ranks(2, [](const Group& group) {
    constexpr int64_t kCount = 100'000;
    Call call = prepare(Routine::kAllReduce, at::kFloat, {kCount}, group);
    for (int round = 0; round < 3; ++round) {
      at::Tensor tensor = group.heap().empty({kCount}, at::kFloat, "test");
      tensor.copy_(numbers(kCount, group.rank()));
      const int64_t before = group.stats().wire_bytes;
      call.start(tensor).wait();
      const int64_t prepared_bytes = group.stats().wire_bytes - before;
      EXPECT_TRUE(at::equal(tensor, numbers(kCount, 0) * 2 + 1));
      EXPECT_EQ(tensor.use_count(), 1u);
      all_reduce(tensor, group).wait();
      EXPECT_EQ(group.stats().wire_bytes - before, 2 * prepared_bytes);
    }
  });
}

TEST(Prepared, TheGroupCountsStartsAndNotThePreparation) {
  run_ranks(2, [](const Group& group) {
    constexpr int64_t kCount = 1000;
    at::Tensor open = numbers(kCount, group.rank()), tensor = numbers(kCount, group.rank());
    all_reduce(tensor, group).wait();
    const Stats one = group.stats();
    Work before = all_reduce(open, group);
    Call call = prepare(Routine::kAllReduce, at::kFloat, {kCount}, group);
    before.wait();
    EXPECT_EQ(group.stats().operations, 2 * one.operations);
    EXPECT_EQ(group.stats().bytes, 2 * one.bytes);
    EXPECT_EQ(group.stats().wire_bytes, 2 * one.wire_bytes);
    call.start(tensor).wait();
    EXPECT_EQ(group.stats().operations, 3 * one.operations);
    EXPECT_EQ(group.stats().wire_bytes, 3 * one.wire_bytes);
  });
}

TEST(Prepared, AllToAllInPlaceChangesSlices) {
  run_ranks(2, [](const Group& group) {
    Call call = prepare(Routine::kAllToAll, at::kInt, {2}, group, {.in_place = true});
    at::Tensor tensor = at::arange(4, at::kInt) + 10 * group.rank();
    call.start(tensor).wait();
    const int first = 2 * group.rank();
    EXPECT_TRUE(
        at::equal(tensor, at::tensor({first, first + 1, first + 10, first + 11}, at::kInt)));
    at::Tensor other = at::zeros({4}, at::kInt);
    EXPECT_THAT(refusal([&] { (void)call.start(other, tensor); }), HasSubstr("two buffers"));
  });
}

TEST(Prepared, WideElementsAreCountedAsTheCallerCounts) {
  run_ranks(2, [](const Group& group) {
    Call call = prepare(Routine::kAllGather, at::kComplexDouble, {3}, group);
    at::Tensor all = at::zeros({6}, at::kComplexDouble);
    const at::Tensor mine = at::full({3}, 1.0 + group.rank(), at::kComplexDouble);
    call.start(all, mine).wait();
    EXPECT_EQ(at::real(all).sum().item<double>(), 9);
    EXPECT_THAT(refusal([&] { (void)call.start(all, all); }),
                HasSubstr("the input has 6 elements and must have 3"));
  });
}

TEST(Prepared, BoundTensorsAreStartedAgain) {
  run_ranks(2, [](const Group& group) {
    Call call = prepare(Routine::kAllReduce, at::kFloat, {4}, group, {.label = "loss"});
    EXPECT_THAT(refusal([&] { (void)call.start(); }),
                AllOf(HasSubstr("all_reduce 'loss' (prepare_test.cpp:"),
                      HasSubstr("no tensors are bound")));
    at::Tensor tensor = at::ones({4});
    call.bind(tensor, tensor);
    for (int i = 0; i < 3; ++i) call.start().wait();
    EXPECT_EQ(tensor[3].item<float>(), 8);
    tensor.resize_({5});
    EXPECT_THAT(refusal([&] { (void)call.start(); }), HasSubstr("has 5 elements and must have 4"));
  });
}

TEST(Prepared, IsHeldBackByAUnitLikeAnyCall) {
  run_ranks(2, [](const Group& group) {
    Call call = prepare(Routine::kAllReduce, at::kFloat, {4}, group, {.label = "in a unit"});
    at::Tensor first = at::ones({4}), second = at::ones({4});
    for (int round = 0; round < 2; ++round) {
      coalesce(group, [&] {
        (void)call.start(first);
        EXPECT_THAT(refusal([&] { (void)call.start(first); }), HasSubstr("is not submitted"));
        EXPECT_THAT(refusal([&] { (void)prepare(Routine::kAllReduce, at::kInt, {1}, group); }),
                    HasSubstr("not inside it"));
        (void)all_reduce(second, group);
      }).wait();
    }
    EXPECT_EQ(first[0].item<float>(), 4);
    EXPECT_EQ(second[0].item<float>(), 4);
  });
}

TEST(PreparedRefusals, NameWhatDoesNotFitBeforeAnythingMoves) {
  run_ranks(2, [](const Group& group) {
    Call call = prepare(Routine::kAllReduce, at::kFloat, {6}, group, {.label = "gradients"});
    const uint64_t sequence = group.sequence();
    const auto said = [&](at::Tensor tensor) { return refusal([&] { (void)call.start(tensor); }); };
    EXPECT_THAT(said(at::zeros({5})),
                AllOf(HasSubstr("invalid_argument: all_reduce 'gradients' (prepare_test.cpp:"),
                      HasSubstr("has 5 elements and must have 6")));
    EXPECT_THAT(said(at::zeros({6}, at::kDouble)),
                HasSubstr("is Double and the call was prepared for Float"));
    EXPECT_THAT(said(at::zeros({6}, at::TensorOptions(at::kMeta))), HasSubstr("is on meta"));
    EXPECT_THAT(said(at::zeros({3, 4}).slice(1, 0, 2)), HasSubstr("not contiguous"));
    EXPECT_THAT(said(at::Tensor()), HasSubstr("undefined"));
    EXPECT_THAT(refusal([] { (void)Call().start(); }), HasSubstr("was not prepared"));
    EXPECT_EQ(group.sequence(), sequence);
    at::Tensor right = at::ones({2, 3});
    call.start(right).wait();
    EXPECT_EQ(right.sum().item<float>(), 12);
  });
}

TEST(PreparedRefusals, OfArgumentsThatCannotBeLeaveTheGroupUsable) {
  run_ranks(2, [](const Group& group) {
    const auto said = [&](Routine routine, const std::vector<int64_t>& counts,
                          const PrepareOptions& options = {}) {
      return refusal([&] { (void)prepare(routine, at::kFloat, counts, group, options); });
    };
    EXPECT_THAT(said(Routine::kAllReduce, {1, 2}), HasSubstr("2 counts are given"));
    EXPECT_THAT(said(Routine::kAllGather, {1, 2, 3}), HasSubstr("3 counts are given and 2 needed"));
    EXPECT_THAT(said(Routine::kAllReduce, {-1}), HasSubstr("out of range"));
    EXPECT_THAT(said(Routine::kBarrier, {1}), HasSubstr("takes no counts"));
    EXPECT_THAT(said(Routine::kSend, {1}), HasSubstr("is not prepared"));
    EXPECT_THAT(said(Routine::kBroadcast, {1}, {.root = 2}), HasSubstr("root 2 is not a rank"));
    EXPECT_THAT(said(Routine::kAllToAll, {1, 2, 3, 4}, {.in_place = true}), HasSubstr("uneven"));
    barrier(group);
  });
}

TEST(PreparedMismatch, IsNamedOnAllRanksAndTheGroupStaysUsable) {
  run_ranks(3, [](const Group& group) {
    const int64_t count = group.rank() == 2 ? 7 : 6;
    EXPECT_THAT(refusal([&] {
                  (void)prepare(Routine::kAllReduce, at::kFloat, {count}, group,
                                {.label = "norms"});
                }),
                AllOf(HasSubstr("mismatch: "), HasSubstr("rank 2 called all_reduce(count 7"),
                      HasSubstr("rank 0 called all_reduce(count 6"), HasSubstr("prepare_test.cpp:"),
                      HasSubstr("(norms)")));
    // One rank refuses its own arguments: it says why, the others say where.
    const std::string said = refusal([&] {
      (void)prepare(Routine::kAllGather, at::kFloat, {group.rank() == 1 ? -4 : 4}, group);
    });
    EXPECT_THAT(said, group.rank() == 1 ? HasSubstr("a count of -4 elements is out of range")
                                        : HasSubstr("rank 1 called all_gather(count 0"));
    barrier(group);
  });
}

TEST(PreparedMismatch, OfStartsIsNamedOnAllRanksLikeAnyCalls) {
  run_ranks(2, [](const Group& group) {
    Call sum = prepare(Routine::kAllReduce, at::kFloat, {4}, group);
    Call most =
        prepare(Routine::kAllReduce, at::kFloat, {4}, group, {.op = schedule::ReduceOp::kMax});
    at::Tensor tensor = at::ones({4});
    Call& mine = group.rank() == 0 ? sum : most;
    EXPECT_THAT(refusal([&] { mine.start(tensor).wait(); }),
                AllOf(HasSubstr("mismatch: "), HasSubstr("sum"), HasSubstr("max"),
                      HasSubstr("prepare_test.cpp:")));
    EXPECT_THAT(refusal([&] { mine.start(tensor).wait(); }), HasSubstr("mismatch: "));
  });
}

TEST(PreparedMismatch, OfTwoCallsOfEqualShapeIsNamedOnAllRanks) {
  run_ranks(2, [](const Group& group) {
    Call first = prepare(Routine::kAllReduce, at::kFloat, {4}, group, {.tag = 7, .label = "first"});
    Call second =
        prepare(Routine::kAllReduce, at::kFloat, {4}, group, {.tag = 7, .label = "second"});
    at::Tensor tensor = at::ones({4});
    first.start(tensor).wait();
    EXPECT_TRUE(at::equal(tensor, at::full({4}, 2.0)));
    Call& mine = group.rank() == 0 ? first : second;
    EXPECT_THAT(refusal([&] { mine.start(tensor).wait(); }),
                AllOf(HasSubstr("(first)"), HasSubstr("(second)"), HasSubstr("the tag is "),
                      HasSubstr("/7 there and ")));
  });
}

TEST(PreparedDeadline, NamesTheAbsentRankInTime) {
  run_ranks(2, [](const Group& group) {
    Call call = prepare(Routine::kAllReduce, at::kFloat, {4}, group, {.deadline = 50ms});
    if (group.rank() == 1) return;
    at::Tensor tensor = at::ones({4});
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(refusal([&] { call.start(tensor).wait(); }),
                AllOf(HasSubstr("timeout: "), HasSubstr("absent rank 1")));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  });
}

TEST(PreparedStart, IsRefusedWhileTheLastOneIsOpen) {
  std::atomic<bool> refused = false;
  run_ranks(2, [&](const Group& group) {
    Call call = prepare(Routine::kAllReduce, at::kFloat, {4}, group, {.label = "twice"});
    at::Tensor tensor = at::ones({4}), other = at::ones({4});
    while (group.rank() == 1 && !refused) std::this_thread::yield();
    Work first = call.start(tensor);
    if (group.rank() == 0) {
      EXPECT_THAT(refusal([&] { (void)call.start(other); }),
                  AllOf(HasSubstr("invalid_argument: all_reduce 'twice'"),
                        HasSubstr("its last start is still open")));
      refused = true;
    }
    first.wait();
    EXPECT_EQ(tensor[0].item<float>(), 2);
    call.start(other).wait();
    EXPECT_EQ(other[0].item<float>(), 2);
  });
}

TEST(ChoiceTable, IsBoundedAndFindsWhatWasUsedLately) {
  ChoiceTable table;
  Request request;
  const auto of_count = [&request](int64_t count) -> const Request& {
    request.count = count;
    return request;
  };
  constexpr auto kKept = static_cast<int64_t>(ChoiceTable::kKept);
  const auto steps = std::make_shared<const schedule::StepList>();
  table.insert(of_count(-1), Choice{steps, nullptr});
  for (int64_t count = 0; count < 8 * kKept; ++count) {
    if (count % kKept == 0) {
      EXPECT_NE(table.find(of_count(-1)), nullptr) << "used lately";
    }
    table.insert(of_count(count), Choice{});
    ASSERT_LE(table.size(), 2 * ChoiceTable::kKept);
  }
  EXPECT_EQ((*table.find(of_count(-1)))->steps, steps);
  EXPECT_EQ(table.find(of_count(0)), nullptr);
  request.counts = {1, 2};
  EXPECT_EQ(table.find(request), nullptr);
}

TEST(ChoiceTable, APreparedCallOutlivesItsEntry) {
  run_ranks(2, [](const Group& group) {
    Call call = prepare(Routine::kAllReduce, at::kFloat, {3}, group);
    for (int64_t count = 0; count < 3 * static_cast<int64_t>(ChoiceTable::kKept); ++count) {
      at::Tensor tensor = at::ones({count});
      all_reduce(tensor, group).wait();
    }
    at::Tensor tensor = at::ones({3});
    call.start(tensor).wait();
    EXPECT_EQ(tensor.sum().item<float>(), 6);
  });
}

}  // namespace
}  // namespace hanji::comm
