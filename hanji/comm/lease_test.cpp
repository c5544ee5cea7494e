#include "hanji/comm/lease.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/shm/heap.h"
#include "hanji/test/run_processes.h"

namespace hanji::comm {
namespace {

using namespace std::chrono_literals;
using internal::numbers;
using internal::refusal;
using internal::run_ranks;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor heap_copy(const at::Tensor& values, const Group& group) {
  at::Tensor tensor = group.heap().empty(values.sizes(), values.scalar_type(), "test");
  return tensor.copy_(values);
}

TEST(AllGatherView, ShowsTheBitsOfEveryShardAndMovesNone) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [](const Group& group) {
      const int64_t rows = 1000 + group.rank();  // uneven
      const at::Tensor shard = heap_copy(numbers(rows * 8, group.rank()).view({rows, 8}), group);
      const Stats before = group.stats();
      Lease lease = all_gather_view(shard, group);
      EXPECT_EQ(group.stats().operations - before.operations, 1);
      EXPECT_LE(group.stats().wire_bytes - before.wire_bytes, 24 * group.size());
      for (int rank = 0; rank < group.size(); ++rank) {
        const int64_t theirs = 1000 + rank;
        EXPECT_TRUE(at::equal(lease[rank], numbers(theirs * 8, rank).view({theirs, 8})));
      }
      EXPECT_EQ(lease[group.rank()].data_ptr(), shard.data_ptr());
      lease.wait_released();
      EXPECT_THAT(refusal([&] { (void)lease.shards(); }), HasSubstr("after release()"));
    });
  }
}

TEST(AllGatherView, IsTheOwnersMemoryUntilItIsReleased) {
  std::atomic<int> looked = 0;
  run_ranks(2, [&](const Group& group) {
    at::Tensor shard = heap_copy(at::zeros({4}), group);
    Lease lease = all_gather_view(shard, group);
    const auto* theirs = lease[1 - group.rank()].const_data_ptr<float>();
    EXPECT_EQ(theirs[0], 0);
    lease.wait_released();
    shard.fill_(group.rank() + 1);
    barrier(group);
    // The mapping stays: what the owner writes now is seen where the view was.
    EXPECT_EQ(theirs[0], 2 - group.rank());
    ++looked;
    while (looked.load() < 2) std::this_thread::sleep_for(1ms);
  });
}

TEST(AllGatherView, OwnerIsToldWhoHoldsItsShard) {
  std::atomic<bool> checked = false;
  run_ranks(3, [&](const Group& group) {
    at::Tensor shard = heap_copy(at::ones({4}), group);
    Lease lease = all_gather_view(shard, group);
    if (group.rank() == 1) {
      while (!lease.holders().empty() && lease.holders() != std::vector{2}) {
        std::this_thread::sleep_for(1ms);
      }
      EXPECT_THAT(refusal([&] { lease.wait_released(50ms); }),
                  AllOf(HasSubstr("timeout: "), HasSubstr("held by ranks 2")));
      shard.fill_(3);  // too early
      EXPECT_THAT(refusal([&] { lease.wait_released(10s); }),
                  AllOf(HasSubstr("rank 1 wrote to its shard while ranks 2 held it")));
      checked = true;
    }
    if (group.rank() == 2) {
      while (!checked.load()) std::this_thread::sleep_for(1ms);
    }
    if (group.rank() != 1) {
      lease.release();
      lease.release();
    }
    barrier(group);
    EXPECT_THAT(lease.holders(), ElementsAre());
  });
}

TEST(AllGatherView, ATensorThatOutlivesTheLeaseIsNamed) {
  run_ranks(2, [](const Group& group) {
    Lease lease = all_gather_view(heap_copy(at::ones({4, 4}), group), group);
    {
      const at::Tensor kept = lease[1 - group.rank()].t();
      EXPECT_THAT(refusal([&] { lease.release(); }),
                  HasSubstr("still has a tensor of the shard of rank"));
    }
    lease.wait_released();
  });
}

TEST(AllGatherView, KeepsTheMemoryOfAnOwnerThatDropsItsTensor) {
  std::atomic<bool> dropped = false;
  run_ranks(2, [&](const Group& group) {
    const auto used = [&group] { return group.heap().raw().used_bytes(group.rank()); };
    {
      Lease lease = all_gather_view(heap_copy(at::full({1 << 16}, 7.0f), group), group);
      if (group.rank() == 0) {
        while (!dropped.load()) std::this_thread::sleep_for(1ms);
        EXPECT_TRUE(at::equal(lease[1], at::full({1 << 16}, 7.0f)));
      }
    }
    if (group.rank() == 1) {
      const at::Tensor other = heap_copy(at::zeros({1 << 16}), group);  // not at the same place
      EXPECT_GE(used(), size_t{2} << 18);
      dropped = true;
    }
    barrier(group);
    all_gather_view(heap_copy(at::ones({1}), group), group).wait_released();
    EXPECT_LT(used(), 1000u);
  });
}

TEST(AllGatherView, RefusesTogetherWhatOneRankCannotShow) {
  run_ranks(2, [](const Group& group) {
    const at::Tensor good = heap_copy(at::ones({4}), group);
    const at::Tensor bad = at::ones({4});
    EXPECT_THAT(refusal([&] { all_gather_view(group.rank() == 1 ? bad : good, group); }),
                AllOf(HasSubstr("invalid_argument: "), HasSubstr("rank 1 is not in its heap")));
    const at::Tensor other = heap_copy(at::ones({4}, at::kInt), group);
    EXPECT_THAT(refusal([&] { all_gather_view(group.rank() == 1 ? other : good, group); }),
                AllOf(HasSubstr("mismatch: "), HasSubstr("rank 1 is Int")));
    all_gather_view(good, group).wait_released();
  });
}

TEST(AllGatherView, IsForReadingOnly) {
  const auto segment = internal::make_segment(2);
  const auto answers = test::run_processes(2, [&](int rank) -> std::string {
    const Group group = Group::over_shm(segment, 0, {0, 1}, rank);
    Lease lease = all_gather_view(heap_copy(at::ones({4}), group), group);
    barrier(group);
    if (rank == 1) lease[0].data_ptr<float>()[0] = 5;
    return "lives";
  });
  EXPECT_EQ(answers[0], "lives");
  EXPECT_EQ(answers[1], "(killed by signal 11)");
}

}  // namespace
}  // namespace hanji::comm
