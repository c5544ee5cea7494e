#include "hanji/shm/message_wait.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "hanji/base/clock.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/shm/snapshot.h"
#include "hanji/test/run_group.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

TEST(MessageGroup, KeepsNameAndRanksInTheirOrder) {
  const std::vector<int> ranks = {7, 0, 1, 2, 12};
  const MessageGroup group("pp", ranks);
  EXPECT_EQ(group.name(), "pp");
  EXPECT_THAT(group.ranks(), ElementsAreArray(ranks));
}

TEST(MessageGroup, IsCutToWhatFits) {
  std::vector<int> ranks;
  for (int rank = 0; rank < 2000; rank += 2) ranks.push_back(rank);
  const MessageGroup group(std::string(100, 'x'), ranks);
  EXPECT_EQ(group.name(), std::string(MessageGroup::kNameBytes - 1, 'x'));
  ASSERT_GT(group.ranks().size(), 20u);
  EXPECT_EQ(group.ranks().back(), 2 * (std::ssize(group.ranks()) - 1));
}

TEST(MessageGroup, ForeignBytesAreNoRanks) {
  MessageGroup group("x", std::vector<int>{3});
  for (uint64_t& word : group.words()) word = 0x2d39'3939'3939'3931;  // "199999-..." without end
  EXPECT_LE(group.ranks().size(), 4096u);
}

Snapshot snapshot_of(const Segment& segment) {
  const base::Fd fd(::fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0));
  return take_snapshot(fd).or_throw();
}

TEST(MessageWait, IsSeenFromOutsideWithTheNumbersOfTheJob) {
  const auto segment = test::make_segment(2);
  for (int rank = 0; rank < 2; ++rank) {
    segment->join(rank);
    trace::Recorder::format(segment->trace_memory(rank), 2 + rank, 6);
  }
  segment->describe_other_hosts("0 2 a(10.0.0.1)\n4 2 c(10.0.0.3)\n");
  const uint32_t site = segment->call_sites().intern(1, "train.cpp:9");
  const std::vector<int> members = {1, 2, 3, 4};
  const MessageGroup group("dp", members);
  begin_message_wait(*segment, 1, group,
                     {.routine = schedule::Routine::kAllReduce,
                      .dtype = DType::kFloat32,
                      .call_site = site,
                      .count = 64,
                      .operation = 7});
  const Snapshot seen = snapshot_of(*segment);
  EXPECT_EQ(seen.ranks[0].rank, 2);
  EXPECT_EQ(seen.ranks[1].rank, 3);
  ASSERT_EQ(seen.groups.size(), 1u);
  EXPECT_EQ(seen.groups[0].name, "dp");
  EXPECT_THAT(seen.groups[0].elsewhere, ElementsAre(1, 4));
  ASSERT_EQ(seen.groups[0].members.size(), 2u);
  const MemberSnapshot& waiter = seen.groups[0].members[1];
  EXPECT_EQ(waiter.rank, 3);
  EXPECT_EQ(waiter.begun, 7u);
  ASSERT_TRUE(waiter.waiting_ns);
  EXPECT_LE(*waiter.waiting_ns, base::now_ns());
  EXPECT_EQ(waiter.call->arguments, "all_reduce(sum, float32, 64 elements)");
  EXPECT_EQ(waiter.call->call_site, "train.cpp:9");
  ASSERT_EQ(seen.other_hosts.size(), 2u);
  EXPECT_EQ(seen.other_hosts[1].first_rank, 4);
  EXPECT_EQ(seen.other_hosts[1].name, "c(10.0.0.3)");

  end_message_wait(*segment, 1);
  EXPECT_FALSE(snapshot_of(*segment).groups[0].members[1].waiting_ns);
}

}  // namespace
}  // namespace hanji::shm
