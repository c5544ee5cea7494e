#include "hanji/schedule/step_list.h"

#include <gmock/gmock.h>

#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/all_to_all.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/schedule/gather.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/internal/test_lists.h"
#include "hanji/schedule/reduce.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/schedule/scatter.h"

namespace hanji::schedule {
namespace {

using testing::ElementsAre;

TEST(AllReduceDirect, OfTwoRanksIsOneReduceBetweenTwoSyncs) {
  const StepList list = all_reduce_direct(2, 1000);
  for (int rank = 0; rank < 2; ++rank) {
    const auto& steps = list.per_rank[rank];
    ASSERT_EQ(steps.size(), 3u);
    EXPECT_EQ(steps[0].kind, StepKind::kSync);
    EXPECT_EQ(steps[2].kind, StepKind::kSync);
    const int64_t begin = rank * 512;
    EXPECT_EQ(steps[1].kind, StepKind::kReduce);
    EXPECT_THAT(steps[1].from, ElementsAre(Operand{0, Place::kInput, 0, begin},
                                           Operand{1, Place::kInput, 0, begin}));
    EXPECT_THAT(steps[1].to, ElementsAre(Operand{0, Place::kOutput, 0, begin},
                                         Operand{1, Place::kOutput, 0, begin}));
    EXPECT_EQ(steps[1].count, rank == 0 ? 512 : 488);
  }
}

TEST(Traffic, OfTheFourAllReducesIsTextbook) {
  const int64_t count = 6400;
  const int64_t bytes = count * 4;
  EXPECT_EQ(wire_bytes(all_reduce_direct(2, count), 4), bytes);  // 2 (p-1)/p N
  EXPECT_EQ(wire_bytes(all_reduce_staged(2, count, 640), 4), bytes);
  EXPECT_EQ(wire_bytes(all_reduce_exchange(2, count), 4), bytes);
  EXPECT_EQ(wire_bytes(all_reduce_flat(2, count), 4), bytes);  // (p-1) N
  EXPECT_EQ(wire_bytes(all_reduce_direct(4, count), 4), bytes * 2 * 3 / 4);
  EXPECT_EQ(wire_bytes(all_reduce_flat(4, count), 4), bytes * 3);
  EXPECT_EQ(traffic_bytes(all_reduce_direct(2, count), 4), 2 * bytes);
  EXPECT_EQ(traffic_bytes(all_reduce_flat(2, count), 4), 5 * bytes);
}

TEST(Syncs, AreAsTheHeadersSay) {
  EXPECT_EQ(num_syncs(all_reduce_flat(4, 1000)), 1);
  EXPECT_EQ(num_syncs(all_reduce_direct(4, 1000)), 2);
  EXPECT_EQ(num_syncs(all_reduce_staged(4, 1000, 100)), 12);
  EXPECT_EQ(num_syncs(all_reduce_exchange(4, 1000)), 0);
  EXPECT_EQ(num_syncs(broadcast_staged(4, 1000, 0, 100)), 11);
  EXPECT_EQ(num_syncs(all_gather_staged(4, 1000, 100)), 11);
  EXPECT_EQ(num_syncs(reduce_scatter_staged(4, 1000, 100)), 11);
}

TEST(Staging, DoesNotGrowWithTheMessage) {
  EXPECT_EQ(all_reduce_staged(4, int64_t{1} << 33, 1 << 28).slot_elements, 1 << 29);
  EXPECT_EQ(broadcast_staged(4, 1000, 0, 100).slot_elements, 200);
  EXPECT_EQ(all_gather_staged(4, 1000, 100).slot_elements, 200);
  EXPECT_EQ(reduce_scatter_staged(4, 1000, 100).slot_elements, 800);
  EXPECT_EQ(all_reduce_staged(4, 10, 100).slot_elements, 20);
}

TEST(TouchesPeerTensors, IsTrueOfDirectListsAlone) {
  for (const StepList& list : internal::all_lists(3, 500)) {
    const bool in_heap = list.algorithm == "direct" || list.algorithm == "swap";
    EXPECT_EQ(touches_peer_tensors(list), in_heap) << internal::describe(list);
  }
}

TEST(ElementsOf, FollowTheRoutine) {
  const StepList gather = all_gather_flat(3, 10);
  EXPECT_EQ(elements_of(gather, 1, Place::kInput), 10);
  EXPECT_EQ(elements_of(gather, 1, Place::kOutput), 30);
  const StepList scatter = reduce_scatter_flat(3, 10);
  EXPECT_EQ(elements_of(scatter, 1, Place::kInput), 30);
  EXPECT_EQ(elements_of(scatter, 1, Place::kOutput), 10);
  EXPECT_EQ(elements_of(scatter, 1, Place::kSlot), 30);
}

TEST(ElementsOf, ARootAloneHasTheWideBuffer) {
  const StepList gathered = gather_direct({2, 0, 5}, 1);
  EXPECT_EQ(elements_of(gathered, 2, Place::kInput), 5);
  EXPECT_EQ(elements_of(gathered, 1, Place::kOutput), 7);
  EXPECT_EQ(elements_of(gathered, 2, Place::kOutput), 0);
  EXPECT_THAT(blocks_of(gathered, 1, Place::kOutput),
              ElementsAre(layout::Range{0, 2}, layout::Range{2, 2}, layout::Range{2, 7}));
  const StepList scattered = scatter_direct(3, 10, 1);
  EXPECT_EQ(elements_of(scattered, 1, Place::kInput), 30);
  EXPECT_EQ(elements_of(scattered, 0, Place::kInput), 0);
  EXPECT_EQ(elements_of(scattered, 0, Place::kOutput), 10);
  EXPECT_EQ(elements_of(reduce_direct(3, 10, 1), 0, Place::kOutput), 0);
}

TEST(ElementsOf, AnAllToAllGivesRowsAndGetsColumns) {
  const StepList list = all_to_all_direct(2, {1, 2, 4, 8});
  EXPECT_EQ(elements_of(list, 0, Place::kInput), 3);
  EXPECT_EQ(elements_of(list, 1, Place::kInput), 12);
  EXPECT_EQ(elements_of(list, 0, Place::kOutput), 5);
  EXPECT_EQ(elements_of(list, 1, Place::kOutput), 10);
  EXPECT_THAT(blocks_of(list, 1, Place::kOutput),
              ElementsAre(layout::Range{0, 2}, layout::Range{2, 10}));
}

TEST(Traffic, OfRoutinesWithARootIsTheLeastThereCanBe) {
  const int64_t bytes = 6400 * 4;
  EXPECT_EQ(traffic_bytes(gather_direct(4, 6400, 0), 4), 2 * bytes);
  EXPECT_EQ(traffic_bytes(scatter_direct(4, 6400, 0), 4), 2 * bytes);
  EXPECT_EQ(traffic_bytes(reduce_direct(4, 6400, 0), 4), 5 * bytes / 4);  // (p+1) N/p
  EXPECT_EQ(traffic_bytes(all_to_all_direct(4, 6400), 4), 8 * bytes);
  EXPECT_EQ(wire_bytes(all_to_all_swap(4, 6400, 640), 4), 3 * bytes);  // (p-1) N
}

TEST(Makers, RefuseWhatIsNoCall) {
  EXPECT_THROW(all_reduce_direct(0, 1), Error);
  EXPECT_THROW(all_reduce_direct(kMaxRanks + 1, 1), Error);
  EXPECT_THROW(all_reduce_flat(2, -1), Error);
  EXPECT_THROW(all_reduce_flat(2, INT64_MAX), Error);
  EXPECT_THROW(all_reduce_staged(2, 10, 0), Error);
  EXPECT_THROW(broadcast_flat(2, 10, 2), Error);
  EXPECT_THROW(broadcast_flat(2, 10, -1), Error);
  EXPECT_THROW(gather_direct(2, 10, 2), Error);
  EXPECT_THROW(gather_direct(std::vector<int64_t>{}, 0), Error);
  EXPECT_THROW(scatter_direct({4, -1}, 0), Error);
  EXPECT_THROW(all_gather_flat({INT64_MAX, 1}), Error);
  EXPECT_THROW(all_to_all_direct(2, {1, 2, 3}), Error);
  EXPECT_THROW(all_to_all_swap(2, 10, 0), Error);
}

}  // namespace
}  // namespace hanji::schedule
