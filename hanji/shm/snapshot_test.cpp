// A segment seen from outside, by a descriptor that can only be read.
#include "hanji/shm/snapshot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/send.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/hang.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/test/run_group.h"
#include "hanji/test/run_processes.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm {
namespace {

using namespace std::chrono_literals;
using test::call_of;
using test::Member;
using test::share;
using testing::ElementsAre;
using testing::HasSubstr;

base::Fd read_only(const Segment& segment) {
  return base::Fd(
      ::open(fmt::format("/proc/self/fd/{}", segment.fd()).c_str(), O_RDONLY | O_CLOEXEC));
}

std::shared_ptr<Segment> make_segment(int ranks, uint32_t trace_events) {
  SegmentOptions options;
  options.ranks = ranks;
  options.heap_bytes_per_rank = 4 << 20;
  options.trace_events = trace_events;
  options.build_id = "of a test";
  return Segment::create(options).or_throw();
}

TEST(Snapshot, OfASegmentThatNobodyJoined) {
  const auto segment = make_segment(2, 64);
  const auto snapshot = take_snapshot(read_only(*segment));
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().to_string();
  EXPECT_EQ(snapshot->build_id, "of a test");
  EXPECT_FALSE(snapshot->end);
  EXPECT_TRUE(snapshot->groups.empty());
  ASSERT_EQ(snapshot->ranks.size(), 2u);
  EXPECT_EQ(snapshot->ranks[1].presence, RankPresence::kNeverCame);
  EXPECT_EQ(snapshot->ranks[1].state, 'X');
}

TEST(Snapshot, ShowsACallThatOneRankWaitsInAndWhoDelivered) {
  const auto segment = make_segment(2, 64);
  const auto list = share(schedule::all_reduce_direct(2, 1000));
  test::run_threads(2, [&](int rank) {
    EngineOptions options;
    options.deadline = rank == 0 ? 30s : 5s;
    test::run_member(
        segment, rank,
        [&](Member& member) {
          Call call = call_of(list);
          call.input = call.output = member.allocate<float>(1000);
          call.call_site = segment->call_sites().intern(rank, "loop.cpp:5\n");
          ASSERT_TRUE(member.run(call).ok());
          if (rank == 0) {
            ASSERT_TRUE(member.run(call).ok());
            return;
          }
          Snapshot snapshot;
          do {  // Until rank 0 sleeps in its second call.
            snapshot = take_snapshot(read_only(*segment)).or_throw();
          } while (!snapshot.groups[0].members[0].waiting_ns ||
                   snapshot.groups[0].members[0].begun != 2);
          ASSERT_EQ(snapshot.groups.size(), 1u);
          const MemberSnapshot& waiter = snapshot.groups[0].members[0];
          EXPECT_EQ(waiter.begun, 2u);
          EXPECT_EQ(waiter.completed, 1u);
          ASSERT_TRUE(waiter.call);
          EXPECT_EQ(waiter.call->arguments, "all_reduce(sum, float32, 1000 elements)");
          EXPECT_EQ(waiter.call->operation, 2u);
          EXPECT_EQ(waiter.call->count, 1000);
          EXPECT_EQ(waiter.call->call_site, "loop.cpp:5?");
          EXPECT_LE(*waiter.waiting_ns, snapshot.taken_ns);
          EXPECT_THAT(arrived(snapshot.groups[0], 2), ElementsAre(0));
          EXPECT_THAT(delivered(snapshot.groups[0], 1), ElementsAre(0, 1));
          EXPECT_THAT(judge(snapshot, 0ns).culprits, ElementsAre(1));
          ASSERT_TRUE(member.run(call).ok());
        },
        options);
  });
}

TEST(Snapshot, TellsGroupsOfOneIdApartAndShowsChannels) {
  const auto segment = make_segment(4, 64);
  test::run_threads(4, [&](int rank) {
    const std::vector<int> members = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{3, 2};
    const auto engine = Engine::create(segment, 7, members, rank).or_throw();
    const auto list = share(schedule::barrier(2));
    ASSERT_TRUE(engine->wait(engine->submit(call_of(list)).or_throw()).ok());
  });
  const auto channel = Engine::create_channel(segment, 2, 0, 2).or_throw();
  const auto snapshot = take_snapshot(read_only(*segment)).or_throw();
  ASSERT_EQ(snapshot.groups.size(), 3u);
  EXPECT_EQ(snapshot.groups[0].id, 7);
  EXPECT_THAT(arrived(snapshot.groups[0], 1), ElementsAre(0, 1));
  EXPECT_THAT(arrived(snapshot.groups[1], 1), ElementsAre(2, 3));
  EXPECT_EQ(snapshot.groups[2].sender, 2);
  EXPECT_THAT(arrived(snapshot.groups[2], 0), ElementsAre(2, 0));
}

TEST(Snapshot, TheLast4096CallsSurviveSigkill) {
  const auto segment = make_segment(1, 64);  // events: far fewer than there are calls
  const int pid = ::fork();
  if (pid == 0) {
    auto recorder = trace::Recorder::format(segment->trace_memory(0), 0, 1);
    EngineOptions options;
    options.recorder = &recorder;
    test::run_member(
        segment, 0,
        [&](Member& member) {
          Call call = call_of(share(schedule::barrier(1)));
          call.call_site = segment->call_sites().intern(0, "loop.cpp:5");
          for (int i = 0; i < 10'000; ++i) (void)member.run(call);
          for (int i = 0; i < 1000; ++i) recorder.add({.end_ns = 1});  // drive calls out of it
          ::kill(::getpid(), SIGKILL);
        },
        options);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto snapshot = take_snapshot(read_only(*segment)).or_throw();
  ASSERT_EQ(snapshot.ranks[0].calls.size(), kFlightCalls);
  for (size_t i = 0; i < kFlightCalls; ++i) {
    EXPECT_EQ(snapshot.ranks[0].calls[i].operation, 10'000 - kFlightCalls + i + 1);
  }
  const CompletedCall& last = snapshot.ranks[0].calls.back();
  EXPECT_EQ(last.routine, "barrier");
  EXPECT_EQ(last.group, 0);
  EXPECT_EQ(last.call_site, "loop.cpp:5");
  EXPECT_EQ(judge(snapshot).kind, HangKind::kDead);
}

TEST(Snapshot, ShowsTheWordThatEndedTheJob) {
  const auto segment = make_segment(2, 64);
  segment->join(1);
  segment->abort(1, Code::kMismatch, "rank 1 calls barrier()\n");
  const auto snapshot = take_snapshot(read_only(*segment)).or_throw();
  ASSERT_TRUE(snapshot.end);
  EXPECT_EQ(snapshot.end->code, Code::kMismatch);
  EXPECT_EQ(snapshot.end->rank, 1);
  EXPECT_EQ(snapshot.end->text, "rank 1 calls barrier()?");
}

TEST(Snapshot, RefusesWhatIsNoSegment) {
  base::Fd other(::memfd_create("hanji", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto refusal = [&] {
    const Status status = take_snapshot(other).status();
    EXPECT_EQ(status.code(), Code::kCorrupt);
    return status.message();
  };
  EXPECT_THAT(refusal(), HasSubstr("not sealed"));
  ASSERT_EQ(::fcntl(other.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THAT(refusal(), HasSubstr("0 bytes"));
  ASSERT_EQ(::ftruncate(other.get(), 1 << 20), 0);
  EXPECT_THAT(refusal(), HasSubstr("not a hanji segment"));
}

TEST(Snapshot, TrustsNoWordOfASegment) {
  const auto segment = make_segment(2, 64);
  segment->join(0);
  // Everything behind the header: ones.
  const auto at = internal::offsets_of(2, segment->trace_memory(0).size(), 4 << 20);
  std::fill(segment->data() + internal::kAbortOffset, segment->data() + at.staging,
            std::byte{0xff});
  const auto snapshot = take_snapshot(read_only(*segment));
  ASSERT_TRUE(snapshot.ok());
  EXPECT_FALSE(judge(*snapshot).sentence.empty());
}

}  // namespace
}  // namespace hanji::shm
