// What reduce, gather, scatter, all_to_all and the uneven routines leave behind, element by element,
// in every way of running them: in the heap and outside, in place and not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_to_all.h"
#include "hanji/schedule/gather.h"
#include "hanji/schedule/reduce.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/schedule/scatter.h"
#include "hanji/schedule/staging.h"
#include "hanji/test/run_group.h"

namespace hanji::shm {
namespace {

using schedule::Place;
using schedule::Routine;
using schedule::StepList;
using test::call_of;
using test::Member;
using test::run_group;
using test::share;
using testing::HasSubstr;

constexpr int64_t kRoutineChunk = 1000;
constexpr float kUntouched = -1.0f;

std::vector<int64_t> uneven_counts(int ranks, int64_t count) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back((rank * 3 + 1) % 4 * count / 2);
  return counts;
}

std::vector<int64_t> uneven_pairs(int ranks, int64_t count) {
  std::vector<int64_t> counts;
  for (int i = 0; i < ranks * ranks; ++i) counts.push_back((i * 3 + 1) % 4 * count / 2);
  return counts;
}

// Every list of the routines tested here.
std::vector<StepList> lists_of(int ranks, int64_t count) {
  const int root = ranks / 2;
  const auto counts = uneven_counts(ranks, count);
  const auto pairs = uneven_pairs(ranks, count);
  using namespace schedule;
  return {reduce_flat(ranks, count, root),
          reduce_direct(ranks, count, root),
          reduce_staged(ranks, count, root, kRoutineChunk),
          gather_flat(ranks, count, root),
          gather_direct(ranks, count, root),
          gather_staged(ranks, count, root, kRoutineChunk),
          scatter_flat(ranks, count, root),
          scatter_direct(ranks, count, root),
          scatter_staged(ranks, count, root, kRoutineChunk),
          all_to_all_flat(ranks, count),
          all_to_all_direct(ranks, count),
          all_to_all_swap(ranks, count, kRoutineChunk),
          all_to_all_staged(ranks, count, kRoutineChunk),
          gather_flat(counts, root),
          gather_direct(counts, root),
          gather_staged(counts, root, kRoutineChunk),
          scatter_flat(counts, root),
          scatter_direct(counts, root),
          scatter_staged(counts, root, kRoutineChunk),
          all_gather_flat(counts),
          all_gather_direct(counts),
          all_gather_staged(counts, kRoutineChunk),
          reduce_scatter_flat(counts),
          reduce_scatter_direct(counts),
          reduce_scatter_staged(counts, kRoutineChunk),
          all_to_all_flat(ranks, pairs),
          all_to_all_direct(ranks, pairs),
          all_to_all_staged(ranks, pairs, kRoutineChunk)};
}

std::string describe(const StepList& list) {
  return std::string(name_of(list.routine)) + " " + list.algorithm +
         (list.counts.empty() ? "" : " uneven") + " of " + std::to_string(list.count) + " over " +
         std::to_string(list.ranks);
}

// Small whole numbers, so that every sum is exact.
float value_of(int rank, int64_t index) { return static_cast<float>(index % 1000 + 7 * rank); }

/// What one rank's output holds at the end, by the definition of the routine.
class Due {
 public:
  Due(const StepList& list, int rank) : list_(list), rank_(rank) {
    if (!has_shares(list.routine)) return;
    for (int each = 0; each < list.ranks; ++each) {
      given_.push_back(blocks_of(list, each, Place::kInput));
    }
    got_ = blocks_of(list, rank, Place::kOutput);
  }

  float at(int64_t i) const {
    switch (list_.routine) {
      case Routine::kReduce: return sum(i);
      case Routine::kReduceScatter: return sum(given_[rank_][rank_].begin + i);
      case Routine::kScatter: return value_of(list_.root, given_[rank_][rank_].begin + i);
      default: break;
    }
    int owner = 0;
    while (i >= got_[owner].end) ++owner;
    const int64_t inside = i - got_[owner].begin;
    const bool all_to_all = list_.routine == Routine::kAllToAll;
    return value_of(owner, (all_to_all ? given_[owner][rank_].begin : 0) + inside);
  }

 private:
  float sum(int64_t i) const {
    float total = 0;
    for (int each = 0; each < list_.ranks; ++each) total += value_of(each, i);
    return total;
  }

  const StepList& list_;
  int rank_;
  std::vector<std::vector<layout::Range>> given_;
  std::vector<layout::Range> got_;
};

bool has_wide_output(Routine routine) {
  return routine == Routine::kAllGather || routine == Routine::kGather;
}

/// A rank's input and output; in place, the narrow one lies in the wide one.
struct RoutineBuffers {
  float* input = nullptr;
  float* output = nullptr;

  RoutineBuffers(float* memory, const StepList& list, int rank, bool in_place) : input(memory) {
    const int64_t elements = elements_of(list, rank, Place::kInput);
    output = memory + elements;
    if (!in_place) return;
    const bool nested = has_shares(list.routine) && list.routine != Routine::kAllToAll;
    const int64_t own = nested ? blocks_of(list, rank, Place::kInput)[rank].begin : 0;
    const bool wide = !has_root(list.routine) || rank == list.root;
    if (!wide) return;  // this rank has one buffer only
    output = has_wide_output(list.routine) ? memory : memory + own;
    input = has_wide_output(list.routine) ? memory + own : memory;
  }
};

int64_t room_of(const StepList& list) {
  int64_t most = 0;
  for (int rank = 0; rank < list.ranks; ++rank) {
    most = std::max(
        most, elements_of(list, rank, Place::kInput) + elements_of(list, rank, Place::kOutput));
  }
  return most;
}

void run_and_compare(Member& member, const std::shared_ptr<const StepList>& list, float* memory,
                     bool in_place) {
  const RoutineBuffers buffers(memory, *list, member.rank, in_place);
  const int64_t given = elements_of(*list, member.rank, Place::kInput);
  const int64_t got = elements_of(*list, member.rank, Place::kOutput);
  std::fill_n(memory, room_of(*list), kUntouched);
  for (int64_t i = 0; i < given; ++i) buffers.input[i] = value_of(member.rank, i);
  Call call = call_of(list);
  call.input = buffers.input;
  call.output = buffers.output;
  const Status status = member.run(call);
  ASSERT_TRUE(status.ok()) << status.message();
  const Due due(*list, member.rank);
  for (int64_t i = 0; i < got; ++i) ASSERT_EQ(buffers.output[i], due.at(i)) << "element " << i;
  if (in_place) return;
  for (int64_t i = 0; i < given; ++i) ASSERT_EQ(buffers.input[i], value_of(member.rank, i));
}

class Routines : public testing::TestWithParam<std::tuple<int, int64_t>> {};

TEST_P(Routines, LeaveWhatTheySayInEveryWay) {
  const auto [ranks, count] = GetParam();
  std::vector<std::shared_ptr<const StepList>> lists;
  int64_t room = 0;
  for (StepList& list : lists_of(ranks, count)) {
    if (list.slot_elements * 4 > schedule::kSlotBytes) continue;
    room = std::max(room, room_of(list));
    lists.push_back(share(std::move(list)));
  }
  run_group(ranks, [&, count = count](Member& member) {
    float* in_heap = member.allocate<float>(room + 1);
    std::vector<float> outside(room + 1);
    for (const auto& list : lists) {
      for (const bool in_place : {false, true}) {
        if (in_place && !list->in_place) continue;
        SCOPED_TRACE(describe(*list) + (in_place ? " in place" : ""));
        run_and_compare(member, list, in_heap, in_place);
        if (testing::Test::HasFatalFailure()) return;
        if (touches_peer_tensors(*list)) continue;
        run_and_compare(member, list, outside.data() + 1, in_place);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(RanksAndCounts, Routines,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5),
                                          testing::Values(0, 1, 1009, 5003)));

TEST(AllToAll, WithDirectStepsIsRefusedInPlace) {
  run_group(2, [](Member& member) {
    Call call = call_of(share(schedule::all_to_all_direct(2, 100)));
    auto* data = member.allocate<float>(400);
    call.input = data;
    call.output = data + 100;
    const Status status = member.run(call);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("input and output share memory"));
    call.output = data + 200;
    EXPECT_TRUE(member.run(call).ok());
  });
}

TEST(Gather, AsksOfOtherRanksNoOutput) {
  run_group(3, [](Member& member) {
    Call call = call_of(share(schedule::gather_direct(3, 100, 1)));
    call.input = member.allocate<float>(100);
    if (member.rank == 1) call.output = member.allocate<float>(300);
    EXPECT_TRUE(member.run(call).ok());
  });
}

TEST(Gather, IntoAPrivateOutputTakesTheOtherList) {
  run_group(3, [](Member& member) {
    Call call = call_of(share(schedule::gather_direct(3, 500, 0)));
    call.steps_if_private = share(schedule::gather_staged(3, 500, 0, 128));
    std::vector<float> output(1500);
    auto* input = member.allocate<float>(500);
    std::iota(input, input + 500, static_cast<float>(500 * member.rank));
    call.input = input;
    call.output = member.rank == 0 ? output.data() : nullptr;
    ASSERT_TRUE(member.run(call).ok());
    for (int i = 0; member.rank == 0 && i < 1500; ++i) ASSERT_EQ(output[i], i);
  });
}

}  // namespace
}  // namespace hanji::shm
