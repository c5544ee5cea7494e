// Ranks that go on without those that were killed.
#include "hanji/shm/survivors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/send.h"
#include "hanji/shm/liveness.h"
#include "hanji/test/run_group.h"
#include "hanji/test/run_processes.h"

namespace hanji::shm {
namespace {

using namespace std::chrono_literals;
using test::call_of;
using test::share;
using testing::HasSubstr;

std::unique_ptr<Watchdog> watch_peers(const std::shared_ptr<Segment>& segment, int rank) {
  segment->join(rank);
  std::vector<base::Fd> pidfds;
  for (int peer = 0; peer < segment->ranks(); ++peer) {
    while (segment->pid(peer) == 0) ::usleep(100);
    pidfds.push_back(peer == rank ? base::Fd() : open_pidfd(segment->pid(peer)).or_throw());
  }
  return Watchdog::start(segment, rank, std::move(pidfds)).or_throw();
}

/// A rank and the group that it is in at present.
class Rank {
 public:
  Rank(std::shared_ptr<Segment> segment, int rank)
      : segment_(std::move(segment)), rank_(rank), members_(test::first_ranks(segment_->ranks())) {
    engine_ = Engine::create(segment_, 0, members_, rank_, options_).or_throw();
  }

  Status run(Engine& engine, Call call) {
    HANJI_ASSIGN_OR_RETURN(const uint64_t ticket, engine.submit(call));
    return engine.wait(ticket);
  }

  Status barrier() { return run(*engine_, call_of(share(schedule::barrier(engine_->size())))); }

  /// The sum of the members' ranks.
  Result<int> sum_of_ranks() {
    float value = static_cast<float>(rank_);
    Call call = call_of(share(schedule::all_reduce_flat(engine_->size(), 1)));
    call.input = call.output = &value;
    HANJI_RETURN_IF_ERROR(run(*engine_, call));
    return static_cast<int>(value);
  }

  /// The first member sends its rank to the last, over their channel.
  Result<int> send_first_to_last() {
    float value = static_cast<float>(rank_);
    Call call = call_of(share(schedule::send_flat(1)));
    if (rank_ == members_.front()) call.input = &value;
    if (rank_ == members_.back()) call.output = &value;
    if (call.input == nullptr && call.output == nullptr) return -1;
    options_.epoch = engine_->epoch();
    HANJI_ASSIGN_OR_RETURN(auto channel, Engine::create_channel(segment_, members_.front(),
                                                                members_.back(), rank_, options_));
    HANJI_RETURN_IF_ERROR(run(*channel, call));
    return static_cast<int>(value);
  }

  /// Until a group of those that live has met.
  Status go_on() {
    SurvivorOptions options{group_, members_, rank_, engine_->epoch(), group_ + 1, 30s};
    while (true) {
      HANJI_ASSIGN_OR_RETURN(const Survivors survivors, agree_on_survivors(*segment_, options));
      options = {survivors.group_id, survivors.members,      rank_,
                 survivors.epoch,    survivors.group_id + 1, 30s};
      options_.epoch = survivors.epoch;
      auto engine =
          Engine::create(segment_, survivors.group_id, survivors.members, rank_, options_);
      Status status = engine.status();
      if (engine.ok()) {
        const int size = (*engine)->size();
        status = run(**engine, call_of(share(schedule::barrier(size))));
      }
      if (status.code() == Code::kPeerLost) continue;
      HANJI_RETURN_IF_ERROR(status);
      engine_ = *std::move(engine);
      members_ = survivors.members;
      group_ = survivors.group_id;
      return {};
    }
  }

  const std::vector<int>& members() const { return members_; }
  Engine& engine() { return *engine_; }

 private:
  std::shared_ptr<Segment> segment_;
  int rank_;
  int group_ = 0;
  std::vector<int> members_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

TEST(Survivors, GoOnAfterTwoDeathsInARow) {
  const auto segment = test::make_segment(4);
  const auto answers = test::run_processes(4, [&](int rank) -> std::string {
    const auto watchdog = watch_peers(segment, rank);
    Rank me(segment, rank);
    std::string told;
    for (const int dying : {2, 0, -1}) {
      const auto sum = me.sum_of_ranks();
      const auto sent = me.send_first_to_last();
      if (!sum.ok() || !sent.ok()) return sum.status().to_string() + sent.status().to_string();
      told += fmt::format("[{}] {} {}; ", fmt::join(me.members(), " "), *sum, *sent);
      if (dying == -1) break;
      Status status = me.barrier();
      if (rank == dying) ::kill(::getpid(), SIGKILL);
      while (status.ok()) status = me.sum_of_ranks().status();
      if (status.code() != Code::kPeerLost) return status.to_string();
      if (const Status gone = me.go_on(); !gone.ok()) return gone.to_string();
    }
    return told;
  });
  EXPECT_EQ(answers[0], "(killed by signal 9)");
  EXPECT_EQ(answers[2], "(killed by signal 9)");
  EXPECT_EQ(answers[1], "[0 1 2 3] 6 -1; [0 1 3] 4 -1; [1 3] 4 1; ");
  EXPECT_EQ(answers[3], "[0 1 2 3] 6 0; [0 1 3] 4 0; [1 3] 4 1; ");
}

TEST(Survivors, OneMayDieOnTheWayToTheMeeting) {
  const auto segment = test::make_segment(4);
  const auto answers = test::run_processes(4, [&](int rank) -> std::string {
    const auto watchdog = watch_peers(segment, rank);
    Rank me(segment, rank);
    if (rank == 1) ::kill(::getpid(), SIGKILL);
    Status status;
    while (status.ok()) status = me.sum_of_ranks().status();
    if (rank == 3) {
      ::usleep(50'000);  // the others wait for it
      ::kill(::getpid(), SIGKILL);
    }
    if (const Status gone = me.go_on(); !gone.ok()) return gone.to_string();
    return fmt::format("{} {}", fmt::join(me.members(), " "), *me.sum_of_ranks());
  });
  EXPECT_EQ(answers[0], "0 2 2");
  EXPECT_EQ(answers[2], "0 2 2");
}

TEST(Survivors, WhoLivesAndDoesNotComeIsNamed) {
  test::run_group(3, [](test::Member& member) {
    if (member.rank == 1) return;
    SurvivorOptions options{0, {0, 1, 2}, member.rank, 0, 1, 100ms};
    const auto survivors = agree_on_survivors(*member.segment, options);
    EXPECT_EQ(survivors.status().code(), Code::kTimeout);
    EXPECT_THAT(survivors.status().message(), HasSubstr("absent: rank 1 of the host"));
  });
}

TEST(Survivors, AllMayGoOnAfterACancelledCall) {
  const auto segment = test::make_segment(3);
  std::atomic<int> summed = 0;
  std::atomic<bool> cancelled = false;
  test::run_threads(3, [&](int rank) {
    Rank me(segment, rank);
    ASSERT_EQ(*me.sum_of_ranks(), 3);
    ++summed;
    while (summed.load() != 3) ::usleep(100);  // what is under way elsewhere would be lost too
    if (rank == 1) {
      const Call call = call_of(share(schedule::barrier(3)));
      EXPECT_TRUE(me.engine().cancel(me.engine().submit(call).or_throw()));
      cancelled = true;
    }
    while (!cancelled.load()) ::usleep(100);
    const Status status = me.barrier();
    ASSERT_EQ(status.code(), Code::kCancelled) << status.message();
    ASSERT_TRUE(me.go_on().ok());
    EXPECT_EQ(me.members().size(), 3u);
    EXPECT_EQ(me.engine().epoch(), 0u);
    EXPECT_EQ(*me.sum_of_ranks(), 3);
  });
}

TEST(Survivors, MeetOncePerGroup) {
  test::run_group(1, [](test::Member& member) {
    const SurvivorOptions options{0, {0}, 0, 0, 1, 1s};
    EXPECT_EQ(agree_on_survivors(*member.segment, options)->group_id, 1);
    EXPECT_EQ(agree_on_survivors(*member.segment, options).status().code(), Code::kInvalidArgument);
  });
}

TEST(Epoch, AnOldDeathDoesNotEndTheNewOne) {
  const auto segment = test::make_segment(3);
  ASSERT_TRUE(segment->abort(1, Code::kPeerLost, "rank 1 died"));
  ASSERT_TRUE(segment->begin_epoch(0, 0b010).ok());
  EXPECT_EQ(segment->epoch(), 1u);
  EXPECT_FALSE(segment->aborted());
  EXPECT_TRUE(segment->aborted(0));
  EXPECT_FALSE(segment->abort(1, Code::kPeerLost, "rank 1 died, says another"));
  EXPECT_FALSE(segment->aborted());
  EXPECT_TRUE(segment->abort(2, Code::kPeerLost, "rank 2 died"));
  EXPECT_EQ(segment->abort_rank(), 2);
}

}  // namespace
}  // namespace hanji::shm
