#include "hanji/shm/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <latch>
#include <thread>

#include "hanji/base/random.h"
#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/pairwise_tree.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/shm/reduce.h"
#include "hanji/test/run_group.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm {
namespace {

using schedule::ReduceOp;
using schedule::StepList;
using test::call_of;
using test::Member;
using test::run_group;
using test::share;
using namespace std::chrono_literals;

enum class Way { kFlat, kDirect, kStaged };

constexpr int64_t kChunk = 1000;

StepList all_reduce_by(Way way, int ranks, int64_t count) {
  if (way == Way::kFlat) return schedule::all_reduce_flat(ranks, count);
  if (way == Way::kDirect) return schedule::all_reduce_direct(ranks, count);
  return schedule::all_reduce_staged(ranks, count, kChunk);
}

StepList broadcast_by(Way way, int ranks, int64_t count, int root) {
  if (way == Way::kFlat) return schedule::broadcast_flat(ranks, count, root);
  if (way == Way::kDirect) return schedule::broadcast_direct(ranks, count, root);
  return schedule::broadcast_staged(ranks, count, root, kChunk);
}

StepList all_gather_by(Way way, int ranks, int64_t count) {
  if (way == Way::kFlat) return schedule::all_gather_flat(ranks, count);
  if (way == Way::kDirect) return schedule::all_gather_direct(ranks, count);
  return schedule::all_gather_staged(ranks, count, kChunk);
}

StepList reduce_scatter_by(Way way, int ranks, int64_t count) {
  if (way == Way::kFlat) return schedule::reduce_scatter_flat(ranks, count);
  if (way == Way::kDirect) return schedule::reduce_scatter_direct(ranks, count);
  return schedule::reduce_scatter_staged(ranks, count, kChunk);
}

// Small whole numbers, so that every sum is exact: a function of rank, round and index.
float value_of(int rank, int round, int64_t index) {
  return static_cast<float>(index % 1000 + 7 * rank + round);
}

// The sum of value_of over all ranks.
float sum_of(int ranks, int round, int64_t index) {
  return static_cast<float>(ranks * (index % 1000 + round) + 7 * ranks * (ranks - 1) / 2);
}

class Collectives : public testing::TestWithParam<std::tuple<int, int64_t, Way>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  int64_t count() const { return std::get<1>(GetParam()); }
  Way way() const { return std::get<2>(GetParam()); }
};

constexpr int kRounds = 3;  // of both sets of staging, and one more

TEST_P(Collectives, AllReduceInPlaceGivesTheSumToEveryRank) {
  const auto list = share(all_reduce_by(way(), ranks(), count()));
  run_group(ranks(), [&](Member& member) {
    auto* data = member.allocate<float>(count());
    Call call = call_of(list);
    call.input = call.output = data;
    for (int round = 0; round < kRounds; ++round) {
      for (int64_t i = 0; i < count(); ++i) data[i] = value_of(member.rank, round, i);
      ASSERT_TRUE(member.run(call).ok());
      for (int64_t i = 0; i < count(); ++i) ASSERT_EQ(data[i], sum_of(ranks(), round, i)) << i;
    }
  });
}

TEST_P(Collectives, AllReduceOutOfPlaceKeepsTheInput) {
  const auto list = share(all_reduce_by(way(), ranks(), count()));
  run_group(ranks(), [&](Member& member) {
    auto* input = member.allocate<float>(count() + 1) + 1;  // misaligned by one element
    auto* output = member.allocate<float>(count() + 3) + 3;
    Call call = call_of(list);
    call.input = input;
    call.output = output;
    for (int64_t i = 0; i < count(); ++i) input[i] = value_of(member.rank, 0, i);
    ASSERT_TRUE(member.run(call).ok());
    for (int64_t i = 0; i < count(); ++i) {
      ASSERT_EQ(input[i], value_of(member.rank, 0, i));
      ASSERT_EQ(output[i], sum_of(ranks(), 0, i));
    }
  });
}

TEST_P(Collectives, BroadcastGivesTheRootsInputToEveryRank) {
  for (const int root : {0, ranks() - 1}) {
    const auto list = share(broadcast_by(way(), ranks(), count(), root));
    run_group(ranks(), [&](Member& member) {
      auto* data = member.allocate<float>(count());
      Call call = call_of(list);
      call.input = call.output = data;
      for (int round = 0; round < kRounds; ++round) {
        for (int64_t i = 0; i < count(); ++i) data[i] = value_of(member.rank, round, i);
        ASSERT_TRUE(member.run(call).ok());
        for (int64_t i = 0; i < count(); ++i) ASSERT_EQ(data[i], value_of(root, round, i)) << i;
      }
    });
  }
}

TEST_P(Collectives, AllGatherGivesEveryInputToEveryRank) {
  const auto list = share(all_gather_by(way(), ranks(), count()));
  run_group(ranks(), [&](Member& member) {
    auto* input = member.allocate<float>(count());
    auto* output = member.allocate<float>(ranks() * count());
    Call call = call_of(list);
    call.input = input;
    call.output = output;
    for (int round = 0; round < kRounds; ++round) {
      for (int64_t i = 0; i < count(); ++i) input[i] = value_of(member.rank, round, i);
      ASSERT_TRUE(member.run(call).ok());
      for (int64_t i = 0; i < ranks() * count(); ++i) {
        ASSERT_EQ(output[i], value_of(static_cast<int>(i / count()), round, i % count()));
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsShardOfTheSum) {
  const auto list = share(reduce_scatter_by(way(), ranks(), count()));
  run_group(ranks(), [&](Member& member) {
    auto* input = member.allocate<float>(ranks() * count());
    auto* output = member.allocate<float>(count());
    Call call = call_of(list);
    call.input = input;
    call.output = output;
    for (int round = 0; round < kRounds; ++round) {
      for (int64_t i = 0; i < ranks() * count(); ++i) input[i] = value_of(member.rank, round, i);
      ASSERT_TRUE(member.run(call).ok());
      for (int64_t i = 0; i < count(); ++i) {
        ASSERT_EQ(output[i], sum_of(ranks(), round, member.rank * count() + i)) << i;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(RanksSizesWays, Collectives,
                         testing::Combine(testing::Values(1, 2, 3, 8),
                                          testing::Values(0, 1, 67, 4099),
                                          testing::Values(Way::kFlat, Way::kDirect, Way::kStaged)));

TEST(Engine, EveryRankCountUpTo16Works) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const auto list = share(schedule::all_reduce_direct(ranks, 1001));
    run_group(ranks, [&](Member& member) {
      auto* data = member.allocate<float>(1001);
      for (int64_t i = 0; i < 1001; ++i) data[i] = value_of(member.rank, 0, i);
      Call call = call_of(list);
      call.input = call.output = data;
      ASSERT_TRUE(member.run(call).ok());
      for (int64_t i = 0; i < 1001; ++i) ASSERT_EQ(data[i], sum_of(ranks, 0, i));
    });
  }
}

// Every type and op, by every way, has the bits of the scalar reduction of the same inputs.
class TypesAndOps : public testing::TestWithParam<Way> {};

TEST_P(TypesAndOps, HaveTheBitsOfTheScalarTree) {
  constexpr int kRanks = 3;
  constexpr int64_t kCount = 331;
  const auto list = share(all_reduce_by(GetParam(), kRanks, kCount));
  const auto tree = schedule::pairwise_tree(kRanks);
  const auto fill = [](std::vector<std::byte>& bytes, int rank) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      // Without the top exponent bits: no NaN, whose payload is the processor's choice.
      bytes[i] = static_cast<std::byte>(base::mix(static_cast<uint64_t>(rank), i) & 0x3f);
    }
  };
  run_group(kRanks, [&](Member& member) {
    for (int d = 0; d < base::kNumDTypes; ++d) {
      const auto dtype = static_cast<DType>(d);
      std::vector<std::vector<std::byte>> inputs(kRanks,
                                                 std::vector<std::byte>(kCount * size_of(dtype)));
      std::vector<const void*> sources;
      for (int rank = 0; rank < kRanks; ++rank) {
        fill(inputs[rank], rank);
        sources.push_back(inputs[rank].data());
      }
      auto* data = member.allocate<std::byte>(kCount * static_cast<int64_t>(size_of(dtype)));
      for (int o = 0; o < schedule::kNumReduceOps; ++o) {
        Call call = call_of(list);
        call.dtype = dtype;
        call.op = static_cast<ReduceOp>(o);
        call.input = call.output = data;
        if (!check_op(call.op, dtype).ok()) {
          ASSERT_EQ(member.run(call).code(), Code::kUnsupported);
          continue;
        }
        std::vector<std::byte> expected(inputs[0].size());
        void* to[] = {expected.data()};
        std::vector<double> factors;
        if (call.op == ReduceOp::kPremulSum) factors = {0.5, -0.75, 1.1};
        if (!factors.empty()) call.factor = factors[member.rank];
        reduce_scalar(dtype, call.op, sources, tree, to, kCount, {factors});
        std::memcpy(data, inputs[member.rank].data(), expected.size());
        ASSERT_TRUE(member.run(call).ok());
        ASSERT_EQ(std::memcmp(data, expected.data(), expected.size()), 0)
            << name_of(dtype) << " " << name_of(call.op);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, TypesAndOps,
                         testing::Values(Way::kFlat, Way::kDirect, Way::kStaged));

TEST(Engine, BarrierHoldsEveryoneUntilTheLastHasCome) {
  const auto list = share(schedule::barrier(4));
  std::atomic<int> arrived = 0;
  run_group(4, [&](Member& member) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      ASSERT_TRUE(member.run(call_of(list)).ok());
      ASSERT_GE(arrived.load(), 4 * round);
      ASSERT_TRUE(member.run(call_of(list)).ok());
    }
  });
}

TEST(Engine, GrainTreeHasTheSameBitsForAllOwners) {
  constexpr int64_t kGrains = 11;
  constexpr int64_t kCount = 257;
  // Values whose sum depends on the order.
  const auto value = [](int64_t grain, int64_t i) {
    return base::uniform(static_cast<uint32_t>(
               base::mix(static_cast<uint64_t>(grain), static_cast<uint64_t>(i)))) -
           0.3;
  };
  const auto sum_with = [&](const std::vector<layout::Range>& owners) {
    const auto tree = schedule::grain_tree(kGrains, owners);
    const auto list = share(schedule::tree_all_reduce(tree, kCount));
    std::vector<double> result(kCount);
    run_group(static_cast<int>(owners.size()), [&](Member& member) {
      const auto& fold = tree.ranks[member.rank];
      const int64_t stride = kCount + 5;
      auto* parts = member.allocate<double>(fold.num_buffers * stride + 1);
      auto* output = member.allocate<double>(kCount);
      for (const auto& step : fold.steps) {
        for (int64_t i = 0; i < kCount; ++i) parts[step.buffer * stride + i] = value(step.grain, i);
        for (const auto& [into, from] : step.combines) {
          for (int64_t i = 0; i < kCount; ++i) parts[into * stride + i] += parts[from * stride + i];
        }
      }
      Call call = call_of(list);
      call.dtype = DType::kFloat64;
      call.input = parts;
      call.output = output;
      call.input_stride = stride;
      call.num_parts = fold.num_buffers;
      ASSERT_TRUE(member.run(call).ok());
      if (member.rank == 0) std::copy(output, output + kCount, result.begin());
    });
    return result;
  };
  const auto alone = sum_with({{0, 11}});
  EXPECT_EQ(sum_with({{0, 6}, {6, 11}}), alone);
  EXPECT_EQ(sum_with({{0, 3}, {3, 4}, {4, 11}}), alone);
}

TEST(Engine, PrivateTensorsTakeTheOtherListEvenIfOnlyOneRankHasThem) {
  const auto direct = share(schedule::all_reduce_direct(3, 5000));
  const auto staged = share(schedule::all_reduce_staged(3, 5000, kChunk));
  run_group(3, [&](Member& member) {
    std::vector<float> outside(5000);
    float* data = member.rank == 1 ? outside.data() : member.allocate<float>(5000);
    Call call = call_of(direct);
    call.steps_if_private = staged;
    call.input = call.output = data;
    for (int round = 0; round < kRounds; ++round) {
      for (int64_t i = 0; i < 5000; ++i) data[i] = value_of(member.rank, round, i);
      ASSERT_TRUE(member.run(call).ok());
      for (int64_t i = 0; i < 5000; ++i) ASSERT_EQ(data[i], sum_of(3, round, i));
    }
  });
}

TEST(Engine, PrivateTensorsWithoutAnotherListAreRefusedOnEveryRank) {
  const auto direct = share(schedule::all_reduce_direct(3, 100));
  run_group(3, [&](Member& member) {
    std::vector<float> outside(100, 1.0f);
    float* data = member.rank == 1 ? outside.data() : member.allocate<float>(100);
    Call call = call_of(direct);
    call.input = call.output = data;
    const Status status = member.run(call);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr("of rank 1 lie outside the heap"));
    EXPECT_EQ(outside[0], 1.0f);
  });
}

TEST(Engine, ABufferThatEndsBehindTheHeapLiesOutsideOfIt) {
  const auto direct = share(schedule::all_reduce_direct(2, 100));
  run_group(2, [&](Member& member) {
    const Segment& segment = *member.segment;
    const auto room =
        member.rank == 1 ? sizeof(float) * 99 : segment.size() - segment.heap_offset(0);
    Call call = call_of(direct);
    call.input = call.output = segment.data() + segment.size() - room;
    const Status status = member.run(call);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr("of rank 1 lie outside the heap"));
  });
}

TEST(Engine, ElementsBeyondTwoGigabytesAreFound) {
  // Only the last 100 of 2^31 + 100 bytes are copied and backed by memory.
  constexpr int64_t kFirst = int64_t{1} << 31;
  StepList list = schedule::broadcast_direct(2, kFirst + 100, 0);
  schedule::Step copy;
  copy.kind = schedule::StepKind::kCopy;
  copy.count = 100;
  copy.from = {{0, schedule::Place::kInput, 0, kFirst}};
  copy.to = {{1, schedule::Place::kOutput, 0, kFirst}};
  list.per_rank = {{{}, copy, {}}, {{}, {}}};
  SegmentOptions options;
  options.ranks = 2;
  options.heap_bytes_per_rank = size_t{3} << 30;
  options.trace_events = 64;
  const auto segment = Segment::create(options).or_throw();
  const auto shared = share(list);
  test::run_threads(2, [&](int rank) {
    const size_t offset = segment->heap_offset(rank);
    ASSERT_TRUE(segment->grow(offset + kFirst, 100).ok());
    std::byte* data = segment->data() + offset;
    if (rank == 0) std::memset(data + kFirst, 42, 100);
    test::run_member(segment, rank, [&](Member& member) {
      Call call = call_of(shared);
      call.dtype = DType::kUInt8;
      call.input = call.output = data;
      ASSERT_TRUE(member.run(call).ok());
      ASSERT_EQ(data[kFirst + 99], std::byte{42});
    });
  });
}

TEST(Engine, SeveralOpenCallsCompleteInOrder) {
  constexpr int kCalls = 40;  // more than the first ring of operations holds
  const auto list = share(schedule::all_reduce_direct(2, 3000));
  run_group(2, [&](Member& member) {
    std::vector<float*> data;
    std::vector<uint64_t> tickets;
    for (int k = 0; k < kCalls; ++k) {
      data.push_back(member.allocate<float>(3000));
      for (int64_t i = 0; i < 3000; ++i) data[k][i] = value_of(member.rank, k, i);
      Call call = call_of(list);
      call.tag = static_cast<uint64_t>(k);
      call.input = call.output = data[k];
      tickets.push_back(member.engine.submit(call).or_throw());
    }
    ASSERT_TRUE(member.engine.wait(tickets[kCalls / 2]).ok());
    ASSERT_TRUE(member.engine.done(tickets[0]));
    ASSERT_TRUE(member.engine.wait(tickets.back()).ok());
    for (int k = 0; k < kCalls; ++k) {
      for (int64_t i = 0; i < 3000; ++i) ASSERT_EQ(data[k][i], sum_of(2, k, i));
    }
  });
}

// The ring of operations grows while the first of them, whose payload lies in it, waits for a peer.
TEST(Engine, MoreOpenCallsLeaveTheSmallOneUnderWayAlone) {
  constexpr int kCalls = 40;
  constexpr int64_t kCount = 8;  // 32 bytes travel in the flag line
  const auto list = share(schedule::all_reduce_flat(2, kCount));
  std::latch all_open(1);
  run_group(2, [&](Member& member) {
    if (member.rank == 1) all_open.wait();
    auto* data = member.allocate<float>(kCalls * kCount);
    uint64_t last = 0;
    for (int k = 0; k < kCalls; ++k) {
      for (int64_t i = 0; i < kCount; ++i) data[k * kCount + i] = value_of(member.rank, k, i);
      Call call = call_of(list);
      call.input = call.output = data + k * kCount;
      last = member.engine.submit(call).or_throw();
    }
    // What the smaller ring left is used for something else, as any program would.
    const std::vector<std::vector<char>> others(200, std::vector<char>(1000, 'x'));
    if (member.rank == 0) all_open.count_down();
    ASSERT_TRUE(member.engine.wait(last).ok());
    for (int k = 0; k < kCalls; ++k) {
      for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(data[k * kCount + i], sum_of(2, k, i)) << k;
    }
  });
}

TEST(Engine, ARefusedCallIsRefusedAgainAndLeavesEqualCallsAlone) {
  const auto list = share(schedule::all_reduce_flat(2, 2));
  run_group(2, [&](Member& member) {
    Call good = call_of(list);
    auto* data = member.allocate<float>(2);
    good.input = good.output = data;
    Call bad = good;
    bad.output = nullptr;
    for (int round = 0; round < 40; ++round) {  // each place of the ring sees both
      EXPECT_EQ(member.engine.submit(bad).status().code(), Code::kInvalidArgument);
      EXPECT_EQ(member.engine.submit(bad).status().code(), Code::kInvalidArgument);
      for (int64_t i = 0; i < 2; ++i) data[i] = value_of(member.rank, round, i);
      ASSERT_TRUE(member.run(good).ok());
      for (int64_t i = 0; i < 2; ++i) ASSERT_EQ(data[i], sum_of(2, round, i));
    }
  });
}

TEST(Engine, GroupsOfSomeRanksWorkBesideEachOther) {
  const auto segment = test::make_segment(4);
  const auto list = share(schedule::all_reduce_flat(2, 10));
  test::run_threads(4, [&](int rank) {
    const std::vector<int> members = rank % 2 == 0 ? std::vector{2, 0} : std::vector{1, 3};
    auto engine = Engine::create(segment, 5, members, rank).or_throw();
    EXPECT_EQ(engine->rank(), rank == members[0] ? 0 : 1);
    std::vector<float> data(10, static_cast<float>(rank));
    Call call = call_of(list);
    call.input = call.output = data.data();
    for (int round = 0; round < 20; ++round) {
      std::fill(data.begin(), data.end(), static_cast<float>(rank));
      const uint64_t ticket = engine->submit(call).or_throw();
      ASSERT_TRUE(engine->wait(ticket).ok());
      ASSERT_EQ(data[9], rank % 2 == 0 ? 2.0f : 4.0f);
    }
  });
}

TEST(Engine, ANewEngineContinuesWhereTheLastOneOfItsGroupStopped) {
  const auto segment = test::make_segment(2);
  const auto list = share(schedule::all_reduce_flat(2, 100));
  test::run_threads(2, [&](int rank) {
    for (int life = 0; life < 3; ++life) {
      test::run_member(segment, rank, [&](Member& member) {
        std::vector<float> data(100, static_cast<float>(life));
        Call call = call_of(list);
        call.input = call.output = data.data();
        ASSERT_TRUE(member.run(call).ok());
        ASSERT_EQ(data[50], static_cast<float>(2 * life));
      });
    }
  });
}

/// Two ranks that record: `run` on each, then `check` with what it recorded.
void run_traced_pair(const std::function<void(Member&)>& run,
                     const std::function<void(int rank, trace::Recorder&)>& check) {
  const auto segment = test::make_segment(2);
  test::run_threads(2, [&](int rank) {
    auto recorder = trace::Recorder::format(segment->trace_memory(rank), rank, 2);
    EngineOptions options;
    options.recorder = &recorder;
    test::run_member(segment, rank, run, options);
    check(rank, recorder);
  });
}

/// How long two traced ranks moved and waited in one all_reduce, rank 1 coming `late`, or pausing
/// so long between submit() and wait().
std::array<Stats, 2> stats_of_all_reduce(std::chrono::milliseconds late,
                                         std::chrono::milliseconds pause = {}) {
  constexpr int64_t kCount = int64_t{4} << 20;
  const auto list = share(schedule::all_reduce_direct(2, kCount));
  std::array<Stats, 2> stats;
  const auto run = [&](Member& member) {
    Call call = call_of(list);
    call.input = call.output = member.allocate<float>(kCount);
    ASSERT_TRUE(member.run(call).ok());  // touches the pages
    const Stats before = member.engine.stats();
    if (member.rank == 1) std::this_thread::sleep_for(late);
    const uint64_t ticket = member.engine.submit(call).or_throw();
    if (member.rank == 1) std::this_thread::sleep_for(pause);
    ASSERT_TRUE(member.engine.wait(ticket).ok());
    Stats& own = stats[member.rank] = member.engine.stats();
    own.busy_ns -= before.busy_ns;
    own.peers_ns -= before.peers_ns;
    own.skew_ns -= before.skew_ns;
  };
  run_traced_pair(run, [&](int rank, trace::Recorder& recorder) {
    int64_t skew_ns = 0, transfer_ns = 0, first_ns = 0;
    for (const trace::Event& event : recorder.events()) {
      if (event.category == trace::Category::kCommunication && first_ns == 0) {
        transfer_ns = 0;  // of the call that touched the pages
        first_ns = event.end_ns;
      }
      if (event.category == trace::Category::kTransfer) {
        EXPECT_EQ(recorder.name(event.name), "all_reduce");
        transfer_ns += event.end_ns - event.start_ns;
      }
      if (event.category != trace::Category::kSkew) continue;
      EXPECT_EQ(recorder.name(event.name), rank == 0 ? "waiting for rank 1" : "waiting for rank 0");
      skew_ns += event.end_ns - event.start_ns;
    }
    // What is shorter than 2 us at one of the few syncs has no event.
    EXPECT_GE(skew_ns, stats[rank].skew_ns - 20'000);
    // A transfer has gaps of at most 1 us between the pieces of 4 MiB that are moved at a time.
    EXPECT_NEAR(static_cast<double>(transfer_ns),
                static_cast<double>(stats[rank].busy_ns + stats[rank].peers_ns), 50'000);
  });
  return stats;
}

// A sleep lasts at least as long as it was asked for, so these bounds hold on any machine. Transfer
// is what both ranks moved, each its half, and no more than that: the sleep is not in it.
TEST(Engine, WaitingForALateRankIsSkewAndNotTransfer) {
  const auto stats = stats_of_all_reduce(300ms);
  EXPECT_GE(stats[0].skew_ns, 290'000'000);
  EXPECT_LE(stats[0].peers_ns, stats[1].busy_ns);
  EXPECT_LT(stats[1].skew_ns, stats[0].skew_ns);
}

// Rank 1 has called, and computes between submit() and wait(): rank 0 waits for its half meanwhile.
TEST(Engine, WaitingForARankThatComputesIsSkewTooOnceAllHaveCalled) {
  const auto stats = stats_of_all_reduce(0ms, 300ms);
  EXPECT_GE(stats[0].skew_ns, 290'000'000 - stats[0].busy_ns);
  EXPECT_LE(stats[0].peers_ns, stats[1].busy_ns);
}

TEST(Engine, WithoutATraceNothingIsSplit) {
  const auto list = share(schedule::all_reduce_direct(2, 50000));
  test::run_group(2, [&](Member& member) {
    Call call = call_of(list);
    call.input = call.output = member.allocate<float>(50000);
    if (member.rank == 1) std::this_thread::sleep_for(20ms);
    ASSERT_TRUE(member.run(call).ok());
    EXPECT_FALSE(member.engine.traced());
    EXPECT_EQ(member.engine.stats().skew_ns, 0);
  });
}

TEST(Engine, RecordsEveryCallAndCountsItsBytes) {
  const auto list = share(schedule::all_reduce_direct(2, 50000));
  const auto run = [&](Member& member) {
    Call call = call_of(list);
    call.input = call.output = member.allocate<float>(50000);
    ASSERT_TRUE(member.run(call).ok());
    EXPECT_EQ(member.engine.stats().num_calls, 1);
    EXPECT_EQ(member.engine.stats().bytes, 200000);
    EXPECT_GT(member.engine.stats().busy_ns, 0);
  };
  run_traced_pair(run, [&](int, trace::Recorder& recorder) {
    auto events = recorder.events();
    std::erase_if(events, [](const auto& e) {
      return e.category == trace::Category::kSkew || e.category == trace::Category::kTransfer;
    });
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(recorder.name(events[0].name), "all_reduce");
    EXPECT_EQ(events[0].bytes, 200000);
    EXPECT_EQ(events[0].sequence, 1);
    EXPECT_EQ(events[0].group_size, 2);
    EXPECT_LT(events[0].start_ns, events[0].end_ns);
  });
}

}  // namespace
}  // namespace hanji::shm
