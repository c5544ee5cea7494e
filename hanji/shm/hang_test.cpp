// Verdicts on jobs that were made up: what a rank does is written down, nothing runs.
#include "hanji/shm/hang.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/shm/snapshot_text.h"

namespace hanji::shm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1000 * kSecond;

PostedCall posted(uint64_t operation, const std::string& routine, const std::string& site) {
  const std::string arguments = routine == "barrier" ? "()" : "(sum, float32, 64 elements)";
  return {operation, routine, "float32", 64, routine + arguments, site};
}

/// Three ranks that have completed four all_reduces of group 0 and compute.
Snapshot computing(int ranks = 3) {
  Snapshot snapshot;
  snapshot.taken_ns = kNow;
  snapshot.groups.push_back({.id = 0, .sender = {}, .members = {}});
  for (int rank = 0; rank < ranks; ++rank) {
    RankSnapshot process;
    process.rank = rank;
    process.pid = 100 + rank;
    process.presence = RankPresence::kHere;
    process.state = 'R';
    process.calls.push_back({4, 0, "all_reduce", "float32", 256, "train.cpp:9", 4,
                             kNow - 5 * kSecond, kNow - 4 * kSecond});
    snapshot.ranks.push_back(process);
    MemberSnapshot member;
    member.rank = rank;
    member.begun = member.completed = 4;
    member.sequence = 8;
    member.call = posted(4, "all_reduce", "train.cpp:9");
    snapshot.groups[0].members.push_back(member);
  }
  return snapshot;
}

/// `rank` waits in the next operation of `group` for so long.
void wait_in(GroupSnapshot& group, int rank, int64_t seconds,
             const std::string& routine = "all_reduce", const std::string& site = "train.cpp:9") {
  for (MemberSnapshot& member : group.members) {
    if (member.rank != rank) continue;
    ++member.begun;
    ++member.sequence;
    member.call = posted(member.begun, routine, site);
    member.waiting_ns = kNow - seconds * kSecond;
  }
}

Snapshot one_behind() {
  Snapshot snapshot = computing();
  wait_in(snapshot.groups[0], 0, 12);
  wait_in(snapshot.groups[0], 2, 10);
  return snapshot;
}

/// A second group of the same ranks, where nobody has called anything.
Snapshot two_groups() {
  Snapshot snapshot = computing(2);
  snapshot.groups.push_back({.id = 1, .sender = {}, .members = {}});
  for (int rank = 0; rank < 2; ++rank) {
    MemberSnapshot member;
    member.rank = rank;
    snapshot.groups[1].members.push_back(member);
  }
  return snapshot;
}

/// Ranks 2 and 3 of a job, which wait for messages of ranks 0 and 1 on another host.
Snapshot second_host(int waiters = 2) {
  Snapshot snapshot = computing(2);
  for (int i = 0; i < 2; ++i) snapshot.ranks[i].rank = snapshot.groups[0].members[i].rank = 2 + i;
  snapshot.other_hosts = {{.first_rank = 0, .num_ranks = 2, .name = "b"}};
  GroupSnapshot messages{.id = 900, .name = "world", .elsewhere = {0, 1}};
  for (int rank = 2; rank < 4; ++rank) {
    MemberSnapshot member;
    member.rank = rank;
    member.begun = member.completed = 4;
    messages.members.push_back(member);
  }
  for (int i = 0; i < waiters; ++i) wait_in(messages, 2 + i, 12 - i);
  snapshot.groups.push_back(messages);
  return snapshot;
}

TEST(Hang, RanksThatWaitForAnotherHostHangAndSayWhatIsNotKnownHere) {
  const Snapshot snapshot = second_host();
  const HangVerdict verdict = judge(snapshot);
  EXPECT_EQ(verdict.kind, HangKind::kElsewhere);
  EXPECT_THAT(verdict.culprits, ElementsAre(0, 1));
  EXPECT_EQ(verdict.sentence,
            "ranks 2 and 3 wait in operation 5 of group world, all_reduce(sum, float32, 64 "
            "elements) at train.cpp:9, for 12.0 s, and no rank of this host is missing there; what "
            "ranks 0 and 1 do is not known here (ranks 0-1 on host b): run hanji debug on their "
            "host");
  EXPECT_THAT(table(snapshot), AllOf(HasSubstr("operation 5 of group world: arrived 2, 3"),
                                     HasSubstr("of ranks 2, 3 here, 0, 1 elsewhere\n"),
                                     HasSubstr("not known here: ranks 0-1 on host b; run hanji")));
}

TEST(Hang, ARankOfThisHostThatIsMissingAmongMessagesIsNamedFirst) {
  const HangVerdict verdict = judge(second_host(1));
  EXPECT_EQ(verdict.kind, HangKind::kAbsent);
  EXPECT_THAT(verdict.culprits, ElementsAre(3));
  EXPECT_THAT(verdict.sentence,
              StartsWith("rank 3 (process 101) has not come to operation 5 of group world"));
}

TEST(Hang, ARankThatWaitsForAMessageIsNotTheCauseForItsHost) {
  Snapshot snapshot = second_host(0);
  wait_in(snapshot.groups[0], 3, 20);  // rank 3 waits for rank 2 in shared memory
  GroupSnapshot messages{.id = 901, .sender = 0, .receiver = 2, .name = "p2p", .elsewhere = {0}};
  messages.members.emplace_back().rank = 2;
  wait_in(messages, 2, 19, "recv");
  snapshot.groups.push_back(messages);
  const HangVerdict verdict = judge(snapshot);
  EXPECT_EQ(verdict.kind, HangKind::kElsewhere);
  EXPECT_THAT(verdict.sentence,
              StartsWith("rank 2 waits in message 1 from rank 0 to rank 2, recv"));
}

TEST(Hang, WhereNobodyWaitsTheOtherHostsAreUnknown) {
  EXPECT_THAT(judge(second_host(0)).sentence,
              testing::EndsWith("nobody waits for anybody; ranks 0-1 on host b: not known here"));
}

TEST(Hang, RanksThatComputeDoNotHang) {
  const HangVerdict verdict = judge(computing());
  EXPECT_EQ(verdict.kind, HangKind::kNone);
  EXPECT_EQ(verdict.sentence,
            "nothing hangs: ranks 0, 1 and 2 are alive, and nobody waits for anybody");
}

TEST(Hang, AShortWaitIsNone) {
  Snapshot snapshot = computing();
  wait_in(snapshot.groups[0], 0, 0);
  EXPECT_EQ(judge(snapshot).kind, HangKind::kNone);
  EXPECT_THAT(judge(snapshot).sentence, HasSubstr("the longest wait is that of rank 0"));
  EXPECT_EQ(judge(snapshot, std::chrono::nanoseconds(0)).kind, HangKind::kAbsent);
}

TEST(Hang, ARankBehindIsNamedWithTheCallThatMissesIt) {
  const HangVerdict verdict = judge(one_behind());
  EXPECT_EQ(verdict.kind, HangKind::kAbsent);
  EXPECT_THAT(verdict.culprits, ElementsAre(1));
  EXPECT_EQ(verdict.group, 0);
  EXPECT_EQ(verdict.operation, 5u);
  EXPECT_EQ(verdict.sentence,
            "rank 1 (process 101) has not come to operation 5 of group 0: it computes (state R), "
            "its last call there was operation 4 of group 0, all_reduce(sum, float32, 64 elements) "
            "at train.cpp:9; ranks 0 and 2 wait for it in operation 5 of group 0, "
            "all_reduce(sum, float32, 64 elements) at train.cpp:9, for 12.0 s");
}

TEST(Hang, ARankIsNamedWithItsCoordinates) {
  Snapshot snapshot = one_behind();
  snapshot.ranks[1].coordinates = "dp=1,tp=0";
  EXPECT_THAT(judge(snapshot).sentence,
              StartsWith("rank 1 (process 101, dp=1,tp=0) has not come to operation 5"));
}

TEST(Hang, ARankThatBeganTheCallAndStaysAwayIsNamed) {
  Snapshot snapshot = one_behind();
  MemberSnapshot& member = snapshot.groups[0].members[1];
  member.begun = 5;
  member.call = posted(5, "all_reduce", "train.cpp:9");
  snapshot.ranks[1].state = 'S';
  const HangVerdict verdict = judge(snapshot);
  EXPECT_EQ(verdict.kind, HangKind::kAbsent);
  EXPECT_THAT(verdict.sentence, AllOf(StartsWith("rank 1 "), HasSubstr("does not go on with it"),
                                      HasSubstr("state S")));
}

TEST(Hang, WhoIsWaitedForByAWaiterIsTheCause) {
  Snapshot snapshot = one_behind();
  snapshot.groups.push_back({.id = 1, .sender = {}, .members = {}});
  for (const int rank : {1, 2}) {
    snapshot.groups[1].members.push_back({});
    snapshot.groups[1].members.back().rank = rank;
  }
  wait_in(snapshot.groups[1], 1, 20, "barrier", "eval.cpp:3");
  snapshot.groups[0].members[2] = computing().groups[0].members[2];  // Rank 2 computes.
  const HangVerdict verdict = judge(snapshot);
  EXPECT_EQ(verdict.kind, HangKind::kAbsent);
  EXPECT_THAT(verdict.culprits, ElementsAre(2));
  EXPECT_EQ(verdict.group, 1);
  EXPECT_THAT(verdict.sentence, HasSubstr("barrier() at eval.cpp:3"));
}

TEST(Hang, RanksInDifferentCallsWaitForEachOther) {
  Snapshot snapshot = two_groups();
  wait_in(snapshot.groups[0], 0, 3);
  wait_in(snapshot.groups[1], 1, 5, "barrier", "eval.cpp:3");
  const HangVerdict verdict = judge(snapshot);
  EXPECT_EQ(verdict.kind, HangKind::kDiverged);
  EXPECT_THAT(verdict.culprits, ElementsAre(0, 1));
  EXPECT_THAT(verdict.sentence,
              AllOf(StartsWith("the ranks wait for each other in different calls"),
                    HasSubstr("rank 0 (process 100) waits for rank 1 in operation 5 of group 0"),
                    HasSubstr("rank 1 (process 101) waits for rank 0 in operation 1 of group 1, "
                              "barrier() at eval.cpp:3, for 5.00 s")));
}

TEST(Hang, DifferentCallsOfOneOperationAreShownBeforeAnybodyWaitsLong) {
  Snapshot snapshot = computing(2);
  wait_in(snapshot.groups[0], 0, 0);
  wait_in(snapshot.groups[0], 1, 0, "barrier", "eval.cpp:3");
  const HangVerdict verdict = judge(snapshot);
  EXPECT_EQ(verdict.kind, HangKind::kDiverged);
  EXPECT_EQ(verdict.operation, 5u);
  EXPECT_THAT(verdict.sentence, AllOf(HasSubstr("calls all_reduce(sum, float32, 64 elements)"),
                                      HasSubstr("calls barrier() at eval.cpp:3")));
}

TEST(Hang, DeadStoppedLeftAndMissingRanksAreToldApart) {
  Snapshot snapshot = one_behind();
  snapshot.ranks[1].state = 'T';
  EXPECT_EQ(judge(snapshot).kind, HangKind::kStopped);
  EXPECT_THAT(judge(snapshot).sentence, StartsWith("rank 1 (process 101) is stopped (state T)"));
  snapshot.ranks[1].state = 'Z';
  EXPECT_EQ(judge(snapshot).kind, HangKind::kDead);
  EXPECT_THAT(judge(snapshot).sentence,
              AllOf(StartsWith("rank 1 (process 101) is dead, its last call there was operation 4"),
                    HasSubstr("ranks 0 and 2 wait for it")));
  snapshot.ranks[1].presence = RankPresence::kLeft;
  EXPECT_THAT(judge(snapshot).sentence, HasSubstr("left the job"));
  snapshot.ranks[1].presence = RankPresence::kNeverCame;
  EXPECT_THAT(judge(snapshot).sentence, HasSubstr("never joined"));
  EXPECT_THAT(judge(snapshot).culprits, ElementsAre(1));
}

TEST(Hang, ARankMayComeALittleLater) {
  Snapshot snapshot = computing();
  wait_in(snapshot.groups[0], 0, 0);
  snapshot.ranks[1].presence = RankPresence::kNeverCame;
  snapshot.ranks[1].state = 'X';
  EXPECT_EQ(judge(snapshot).kind, HangKind::kNone);
}

TEST(Hang, ARankThatLeftAndIsNotMissedIsNoFault) {
  Snapshot snapshot = computing();
  snapshot.ranks[1].presence = RankPresence::kLeft;
  snapshot.ranks[1].state = 'X';
  EXPECT_EQ(judge(snapshot).kind, HangKind::kNone);
}

TEST(Hang, AStoppedRankIsNamedThoughNobodyWaitsYet) {
  Snapshot snapshot = computing();
  snapshot.ranks[2].state = 't';
  EXPECT_THAT(judge(snapshot).culprits, ElementsAre(2));
  EXPECT_THAT(judge(snapshot).sentence, HasSubstr("nobody waits for it yet"));
}

TEST(Hang, AGroupThatWasGivenUpIsNamed) {
  Snapshot snapshot = one_behind();
  snapshot.groups[0].members[0].failed = Code::kTimeout;
  EXPECT_EQ(judge(snapshot).kind, HangKind::kGaveUp);
  EXPECT_THAT(judge(snapshot).sentence, HasSubstr("rank 0 (process 100) gave up in operation 5 of "
                                                  "group 0 (timeout)"));
}

TEST(Hang, TheWordThatEndedTheJobComesFirst) {
  Snapshot snapshot = one_behind();
  snapshot.ranks[0].state = 'X';
  snapshot.end = EndOfJob{Code::kPeerLost, 1, "rank 1 was killed by SIGKILL"};
  const HangVerdict verdict = judge(snapshot);
  EXPECT_EQ(verdict.kind, HangKind::kEnded);
  EXPECT_THAT(verdict.culprits, ElementsAre(1));
  EXPECT_EQ(verdict.sentence, "the job has ended (peer_lost): rank 1 was killed by SIGKILL");
}

TEST(Hang, AMessageIsNamedByItsEnds) {
  Snapshot snapshot = computing(2);
  snapshot.groups.push_back({.id = 257, .sender = 0, .members = {}});
  for (int rank = 0; rank < 2; ++rank) {
    snapshot.groups[1].members.push_back({});
    snapshot.groups[1].members.back().rank = rank;
  }
  wait_in(snapshot.groups[1], 1, 4, "recv", "pipeline.cpp:8");
  EXPECT_THAT(judge(snapshot).sentence, HasSubstr("message 1 from rank 0 to rank 1"));
  EXPECT_THAT(judge(snapshot).culprits, ElementsAre(0));
  EXPECT_THAT(table(snapshot), HasSubstr("0->1"));
}

TEST(Hang, AnEmptyJobHasNoVerdict) {
  Snapshot snapshot;
  EXPECT_THAT(judge(snapshot).sentence, StartsWith("no rank is in the job"));
  EXPECT_THAT(table(snapshot), StartsWith("rank"));
}

TEST(SnapshotText, TheTableSaysWhereEachRankIsAndWhoHasArrived) {
  const std::string text = table(one_behind());
  EXPECT_THAT(text, HasSubstr("0     100  R      0      5          all_reduce  64     float32  "
                              "waits          12.0 s  train.cpp:9\n"));
  EXPECT_THAT(text, HasSubstr("1     101  R      0      4          all_reduce  64     float32  "
                              "between calls  4.00 s  train.cpp:9\n"));
  EXPECT_THAT(text,
              HasSubstr("operation 5 of group 0: arrived 0, 2; delivered none; of ranks 0, 1, 2"));
}

TEST(SnapshotText, WhoHasDeliveredIsCounted) {
  Snapshot snapshot = one_behind();
  MemberSnapshot& member = snapshot.groups[0].members[2];
  member.completed = 5;
  member.waiting_ns.reset();
  EXPECT_THAT(arrived(snapshot.groups[0], 5), ElementsAre(0, 2));
  EXPECT_THAT(delivered(snapshot.groups[0], 5), ElementsAre(2));
  EXPECT_THAT(table(snapshot), HasSubstr("arrived 0, 2; delivered 2;"));
}

TEST(SnapshotText, JsonSaysTheSame) {
  const Snapshot snapshot = one_behind();
  const auto json = base::parse_json(to_json(snapshot, judge(snapshot), 1));
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_EQ((*json)["verdict"]["kind"], "absent");
  EXPECT_EQ((*json)["verdict"]["culprits"][0], 1);
  EXPECT_EQ((*json)["verdict"]["sentence"], judge(snapshot).sentence);
  EXPECT_EQ((*json)["ranks"].size(), 3u);
  EXPECT_EQ((*json)["ranks"][0]["doing"], "waits");
  EXPECT_EQ((*json)["ranks"][0]["seconds"], 12.0);
  EXPECT_EQ((*json)["ranks"][0]["call"]["call_site"], "train.cpp:9");
  EXPECT_EQ((*json)["groups"][0]["arrived"].dump(), "[0,2]");
  EXPECT_EQ((*json)["groups"][0]["members"].dump(), "[0,1,2]");
  EXPECT_EQ((*json)["calls"].size(), 3u);
}

TEST(SnapshotText, TheLastCallsAreListed) {
  Snapshot snapshot = computing(1);
  EXPECT_THAT(list_calls(snapshot, 1), AllOf(HasSubstr("all_reduce"), HasSubstr("1.00 s")));
  EXPECT_THAT(list_calls(snapshot, 0), Not(HasSubstr("all_reduce")));
}

}  // namespace
}  // namespace hanji::shm
