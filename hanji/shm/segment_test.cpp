#include "hanji/shm/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>
#include <set>

#include "hanji/shm/call_site.h"
#include "hanji/shm/heap.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/test/run_group.h"

namespace hanji::shm {
namespace {

using testing::HasSubstr;

std::shared_ptr<Segment> make_named(std::string build_id, std::string plan_hash) {
  SegmentOptions options;
  options.ranks = 2;
  options.heap_bytes_per_rank = size_t{64} << 20;
  options.trace_events = 64;
  options.build_id = std::move(build_id);
  options.plan_hash = std::move(plan_hash);
  return Segment::create(options).or_throw();
}

base::Fd copy_of(const Segment& segment) { return base::Fd(::dup(segment.fd())); }

TEST(Segment, IsTheSameMemoryForWhoeverAttaches) {
  const auto first = make_named("1.0+a", "plan");
  const auto second = Segment::attach(copy_of(*first), "1.0+a", "plan").or_throw();
  EXPECT_NE(first->data(), second->data());
  EXPECT_EQ(second->ranks(), 2);
  EXPECT_EQ(second->heap_bytes_per_rank(), size_t{64} << 20);
  EXPECT_EQ(second->heap_offset(1), first->heap_offset(1));
  first->trace_memory(1)[5] = std::byte{9};
  EXPECT_EQ(second->trace_memory(1)[5], std::byte{9});
  first->abort(1, Code::kPeerLost, "rank 1 died");
  EXPECT_EQ(second->abort_status().message(), "rank 1 died");
}

TEST(Segment, AnotherBuildOrPlanIsRefusedWithBothValues) {
  const auto segment = make_named("1.0+a", "plan a");
  const Status build = Segment::attach(copy_of(*segment), "1.0+b", "plan a").status();
  EXPECT_EQ(build.code(), Code::kMismatch);
  EXPECT_THAT(build.message(), testing::AllOf(HasSubstr("'1.0+a'"), HasSubstr("'1.0+b'")));
  const Status plan = Segment::attach(copy_of(*segment), "1.0+a", "plan b").status();
  EXPECT_EQ(plan.code(), Code::kMismatch);
  EXPECT_THAT(plan.message(), testing::AllOf(HasSubstr("'plan a'"), HasSubstr("'plan b'")));
}

TEST(Segment, ADamagedByteOfTheHeaderIsRefused) {
  for (size_t byte = 0; byte < sizeof(internal::Header); ++byte) {
    const auto segment = make_named("build", "plan");
    segment->data()[byte] ^= std::byte{1};
    EXPECT_EQ(Segment::attach(copy_of(*segment), "build", "plan").status().code(), Code::kCorrupt)
        << "byte " << byte;
  }
}

TEST(Segment, OtherMemoryIsRefused) {
  auto memory = base::SharedMemory::create("other", 1 << 16).or_throw();
  ASSERT_TRUE(memory.grow(0, 1 << 16).ok());
  EXPECT_EQ(Segment::attach(base::Fd(::dup(memory.fd())), "", "").status().code(), Code::kCorrupt);
}

TEST(Segment, ImpossibleOptionsAreRefused) {
  SegmentOptions options;
  options.ranks = 65;
  EXPECT_FALSE(Segment::create(options).ok());
  options.ranks = 1;
  options.build_id = std::string(96, 'x');
  EXPECT_FALSE(Segment::create(options).ok());
}

TEST(Segment, PartsDoNotOverlap) {
  const auto at = internal::offsets_of(3, 8192, internal::kHugePage);
  EXPECT_GE(at.ranks, internal::kAbortOffset + internal::kMaxEpochs * sizeof(internal::AbortWord));
  EXPECT_GE(at.sites, at.ranks + 3 * sizeof(internal::RankState));
  EXPECT_GE(at.groups, at.sites + 3 * sizeof(internal::SiteTable));
  EXPECT_GE(at.channels, at.groups + internal::kMaxGroups * at.group_bytes);
  EXPECT_GE(at.trace, at.channels + 9 * internal::kChannelBytes);
  EXPECT_GE(at.staging, at.trace + 3 * 8192);
  EXPECT_EQ(at.channel_staging, at.staging + internal::kMaxGroups * 3 * internal::kStagingPerRank);
  EXPECT_EQ(at.heap, at.channel_staging + 9 * 2 * internal::kStagingPerRank);
  EXPECT_EQ(at.heap % internal::kHugePage, 0u);
  EXPECT_EQ(at.total, at.heap + 3 * internal::kHugePage);
}

TEST(Segment, ChannelsHaveFlagsAndStagingOfTheirOwn) {
  const auto segment = test::make_segment(3);
  std::set<const void*> flags;
  std::set<size_t> staging;
  for (int sender = 0; sender < 3; ++sender) {
    for (int receiver = 0; receiver < 3; ++receiver) {
      if (sender == receiver) continue;
      const int id = segment->channel_id(sender, receiver);
      for (const int rank : {sender, receiver}) {
        flags.insert(&segment->group_rank(id, rank));
        staging.insert(segment->staging_offset(id, rank));
      }
      flags.insert(&segment->waiters(id));
    }
  }
  for (int rank = 0; rank < 3; ++rank) {
    flags.insert(&segment->group_rank(internal::kMaxGroups - 1, rank));
    staging.insert(segment->staging_offset(internal::kMaxGroups - 1, rank));
  }
  EXPECT_EQ(flags.size(), 6 * 3 + 3u);
  EXPECT_EQ(staging.size(), 6 * 2 + 3u);
}

TEST(Segment, CountsTheProcessorsOfAllRanksOnce) {
  const auto segment = test::make_segment(2);
  EXPECT_EQ(segment->num_processors(), 0);
  segment->join(0);
  const int mine = segment->num_processors();
  EXPECT_GE(mine, 1);
  segment->join(1);
  EXPECT_EQ(segment->num_processors(), mine);
  EXPECT_EQ(segment->pid(1), ::getpid());
}

TEST(CallSites, AreReadableByEveryRank) {
  const auto segment = test::make_segment(2);
  CallSites& sites = segment->call_sites();
  const auto here = std::source_location::current();
  const uint32_t id = sites.intern(1, here, "bucket 3");
  EXPECT_EQ(sites.intern(1, here, "bucket 3"), id);
  EXPECT_NE(sites.intern(1, here, "bucket 4"), id);
  EXPECT_NE(sites.intern(1, here), id);
  EXPECT_EQ(sites.describe(1, id),
            "segment_test.cpp:" + std::to_string(here.line()) + " (bucket 3)");
  EXPECT_EQ(sites.describe(0, id), "an unknown call site");
  const auto other = Segment::attach(copy_of(*segment), "", "").or_throw();
  EXPECT_EQ(other->call_sites().describe(1, id), sites.describe(1, id));
}

TEST(CallSites, BeyondTheTableAreUnknownAndLongOnesAreCut) {
  const auto segment = test::make_segment(1);
  CallSites& sites = segment->call_sites();
  const uint32_t first = sites.intern(0, std::string(500, 'x'));
  EXPECT_EQ(sites.describe(0, first), std::string(127, 'x'));
  for (int i = 0; i < 2000; ++i) sites.intern(0, "site " + std::to_string(i));
  EXPECT_EQ(sites.intern(0, "one more"), 0u);
  EXPECT_EQ(sites.describe(0, 0), "an unknown call site");
  EXPECT_EQ(sites.intern(0, "site 5"), 7u);
}

TEST(CallSites, ManyThreadsAgreeOnTheNumber) {
  const auto segment = test::make_segment(1);
  std::array<uint32_t, 4> ids{};
  test::run_threads(4, [&](int thread) {
    for (int i = 0; i < 300; ++i) {
      ids[thread] = segment->call_sites().intern(0, "site " + std::to_string(i));
    }
  });
  EXPECT_EQ(ids[0], 300u);
  EXPECT_THAT(ids, testing::Each(300u));
}

}  // namespace
}  // namespace hanji::shm
