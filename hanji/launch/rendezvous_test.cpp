#include "hanji/launch/rendezvous.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "hanji/base/socket.h"
#include "hanji/test/run_processes.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using test::run_processes;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

/// As torchrun would tell it.
Identity identity_of(int rank, int size) {
  const std::vector<std::pair<base::Variable, std::string>> table = {
      {base::Variable::kRank, std::to_string(rank)},
      {base::Variable::kWorldSize, std::to_string(size)},
      {base::Variable::kTorchelasticRunId, "rendezvous_test"},
  };
  return *detect([&](base::Variable variable) -> std::optional<std::string> {
    for (const auto& [name, value] : table) {
      if (name == variable) return value;
    }
    return {};
  });
}

class Rendezvous : public testing::Test {
 protected:
  MeetOptions options(std::chrono::milliseconds deadline = 30s) const {
    MeetOptions options;
    options.directory = directory();
    options.deadline = deadline;
    options.segment.build_id = "build 1";
    options.segment.plan_hash = "plan 1";
    options.segment.heap_bytes_per_rank = 1 << 20;
    options.segment.trace_events = 64;
    return options;
  }
  std::filesystem::path directory() const { return folder_.path() / "meet"; }
  std::filesystem::path path(int size) const {
    return meeting_path(directory(), identity_of(0, size));
  }
  std::string outcome(int rank, int size, const MeetOptions& options) const {
    return meet(identity_of(rank, size), options).status().to_string();
  }

 private:
  test::TemporaryFolder folder_;
};

/// "Pid:" of a pidfd, by the kernel's word.
std::string process_behind(const base::Fd& pidfd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(pidfd.get()));
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("Pid:")) return line;
  }
  return "no pidfd";
}

TEST_F(Rendezvous, RanksGetOneSegmentAndTheirPeersProcesses) {
  const auto answers = run_processes(3, [&](int rank) -> std::string {
    auto endpoints = meet(identity_of(rank, 3), options());
    if (!endpoints.ok()) return endpoints.status().to_string();
    auto segment = shm::Segment::attach(std::move(endpoints->segment), "build 1", "plan 1");
    if (!segment.ok()) return segment.status().to_string();
    if (endpoints->rank != rank || endpoints->size != 3) return "wrong place";
    (*segment)->join(rank);
    const auto deadline = base::Deadline::after(30s);
    for (int peer = 0; peer < 3; ++peer) {
      while ((*segment)->pid(peer) == 0 && !deadline.passed()) std::this_thread::sleep_for(1ms);
      const base::Fd& pidfd = endpoints->pidfds[peer];
      if (peer == rank && pidfd.valid()) return "a pidfd of oneself";
      const auto pid = "Pid:\t" + std::to_string((*segment)->pid(peer));
      // A peer that has ended meanwhile has no process any more.
      const std::string behind = peer == rank ? pid : process_behind(pidfd);
      if (behind != pid && behind != "Pid:\t-1") return behind + " instead of " + pid;
    }
    return "met";
  });
  EXPECT_THAT(answers, Each("met"));
  EXPECT_TRUE(std::filesystem::is_empty(directory()));
  EXPECT_EQ(std::filesystem::status(directory()).permissions(), std::filesystem::perms::owner_all);
}

TEST_F(Rendezvous, TimeoutNamesWhoDidNotCome) {
  const auto answers = run_processes(
      2, [&](int rank) { return outcome(rank, 4, options(rank == 0 ? 500ms : 30s)); });
  EXPECT_THAT(answers, Each(AllOf(HasSubstr("timeout"), HasSubstr("2 of 4 ranks"),
                                  HasSubstr("missing: rank 2, 3"),
                                  HasSubstr("LOCAL_RANK and LOCAL_WORLD_SIZE are not set"))));
  EXPECT_TRUE(std::filesystem::is_empty(directory()));
}

TEST_F(Rendezvous, TimeoutNamesRankZero) {
  EXPECT_THAT(outcome(1, 2, options(50ms)),
              AllOf(HasSubstr("timeout"), HasSubstr("rank 1 waited for rank 0")));
}

TEST_F(Rendezvous, ARankClaimedTwiceIsRefusedOnAll) {
  const auto answers =
      run_processes(3, [&](int i) { return outcome(i == 0 ? 0 : 1, 3, options()); });
  EXPECT_THAT(answers, Each(AllOf(HasSubstr("invalid_argument"), HasSubstr("both say"),
                                  HasSubstr("rank 1"))));
}

TEST_F(Rendezvous, ALimitOnDescriptorsOfOneRankIsNamedOnAll) {
  for (const int poor : {0, 1}) {
    const auto answers = run_processes(2, [&](int rank) {
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      const auto open = std::filesystem::directory_iterator("/proc/self/fd");
      const auto num_open = static_cast<rlim_t>(std::distance(begin(open), end(open)));
      limit.rlim_cur = num_open + 12;
      if (rank == poor) ::setrlimit(RLIMIT_NOFILE, &limit);
      return outcome(rank, 2, options());
    });
    EXPECT_THAT(answers,
                Each(AllOf(HasSubstr("invalid_argument"),
                           HasSubstr(fmt::format("rank {}, to meet the ranks of a group", poor)),
                           HasSubstr("the limit is "), HasSubstr("raise it (ulimit -n"))));
  }
}

TEST_F(Rendezvous, DifferentWorldSizesAreRefusedOnAll) {
  const auto answers =
      run_processes(2, [&](int rank) { return outcome(rank, rank == 0 ? 2 : 3, options()); });
  EXPECT_THAT(answers, Each(HasSubstr("rank 1 of 3; rank 0")));
}

TEST_F(Rendezvous, DifferentBuildsAndPlansAreRefusedWithBothShown) {
  const auto builds = run_processes(2, [&](int rank) {
    MeetOptions mine = options();
    if (rank == 1) mine.segment.build_id = "build 2";
    return outcome(rank, 2, mine);
  });
  EXPECT_THAT(builds,
              Each(AllOf(HasSubstr("mismatch"), HasSubstr("'build 2'"), HasSubstr("'build 1'"))));
  const auto plans = run_processes(2, [&](int rank) {
    MeetOptions mine = options();
    if (rank == 1) mine.segment.plan_hash = "plan 2";
    return outcome(rank, 2, mine);
  });
  EXPECT_THAT(plans, Each(AllOf(HasSubstr("'plan 2'"), HasSubstr("'plan 1'"))));
}

TEST_F(Rendezvous, WhatAKilledJobLeftBehindIsSwept) {
  std::filesystem::create_directories(directory());
  ASSERT_EQ(::chmod(directory().c_str(), 0700), 0);
  const auto other = directory() / "0123.sock";
  const auto unfinished = directory() / "0123.999999999";
  for (const auto& left : {path(2), other, unfinished}) {
    const auto listener = base::listen_unix(left);
    ASSERT_TRUE(listener.ok());
  }
  const auto answers = run_processes(2, [&](int rank) { return outcome(rank, 2, options()); });
  EXPECT_THAT(answers, Each("ok"));
  EXPECT_TRUE(std::filesystem::is_empty(directory()));
}

TEST_F(Rendezvous, AMeetingOfTheSameJobThatStillGoesOnIsRefused) {
  std::filesystem::create_directories(directory());
  ASSERT_EQ(::chmod(directory().c_str(), 0700), 0);
  const auto listener = base::listen_unix(path(2));
  ASSERT_TRUE(listener.ok());
  EXPECT_THAT(outcome(0, 2, options()), HasSubstr("another job with the same id"));
  EXPECT_TRUE(std::filesystem::exists(path(2)));
}

TEST_F(Rendezvous, StrangersAreDroppedAndTheRanksMeet) {
  const auto answers = run_processes(3, [&](int i) -> std::string {
    if (i < 2) {
      // Rank 1 comes after the stranger.
      if (i == 1) std::this_thread::sleep_for(200ms);
      return outcome(i, 2, options());
    }
    const auto connection = base::connect_unix(path(2), base::Deadline::after(30s));
    if (!connection.ok()) return connection.status().to_string();
    const std::string request = "GET / HTTP/1.1\r\n\r\n";
    const Status sent = base::send_message(connection->get(), std::as_bytes(std::span(request)));
    const auto answer = base::receive_message(connection->get(), 16, base::Deadline::after(30s));
    return answer.ok() ? "answered" : "ok";
  });
  EXPECT_THAT(answers, Each("ok"));
}

TEST_F(Rendezvous, ARankThatDiesMeanwhileIsNamed) {
  const auto answers = run_processes(3, [&](int rank) -> std::string {
    if (rank < 2) {
      // A thread that meets, in a process that ends while it waits for the others.
      if (rank == 1) {
        std::thread([&] { static_cast<void>(outcome(1, 3, options())); }).detach();
        std::this_thread::sleep_for(500ms);
        return "gone";
      }
      return outcome(0, 3, options());
    }
    return "absent";
  });
  EXPECT_THAT(answers[0], AllOf(HasSubstr("peer_lost"), HasSubstr("rank 1")));
}

TEST_F(Rendezvous, RanksOfSeveralHostsMeetHostByHost) {
  const auto answers = run_processes(4, [&](int rank) -> std::string {
    Identity identity = identity_of(rank, 4);
    identity.local_rank = rank % 2;
    identity.local_size = 2;
    const auto endpoints = meet(identity, options());
    if (!endpoints.ok()) return endpoints.status().to_string();
    return std::to_string(endpoints->rank) + "/" + std::to_string(endpoints->size);
  });
  EXPECT_THAT(answers, testing::ElementsAre("0/2", "1/2", "0/2", "1/2"));
}

TEST_F(Rendezvous, AWorldOfOneMakesNoFile) {
  const auto endpoints = meet(Identity{}, options());
  ASSERT_TRUE(endpoints.ok()) << endpoints.status().to_string();
  EXPECT_EQ(endpoints->size, 1);
  EXPECT_TRUE(endpoints->segment.valid());
  EXPECT_FALSE(std::filesystem::exists(directory()));
}

TEST(MeetingDirectory, IsUnderTheRuntimeFolderIfThatExists) {
  const test::TemporaryFolder folder;
  const auto lookup = [&](const std::string& runtime) {
    return [=](base::Variable variable) -> std::optional<std::string> {
      if (variable == base::Variable::kXdgRuntimeDir) return runtime;
      return {};
    };
  };
  EXPECT_EQ(meeting_directory(lookup(folder.path())), folder.path() / "hanji");
  EXPECT_EQ(meeting_directory(lookup("/no/such/folder")),
            "/tmp/hanji-" + std::to_string(::geteuid()));
}

TEST(MeetingDirectory, ThatIsTooLongForASocketIsRefusedByItsVariable) {
  const std::string short_enough(40, 'x');
  for (const int more : {0, 60}) {
    const std::string folder = "/" + short_enough + std::string(more, 'y');
    const auto lookup = [&](base::Variable variable) {
      return variable == base::Variable::kTmpDir ? std::optional(folder) : std::nullopt;
    };
    const auto path = meeting_path(meeting_directory(lookup), {.job_id = "job"});
    const bool is_long = more == 60;
    const Status status = check_meeting_path(path, lookup);
    EXPECT_EQ(status.ok(), !is_long) << status.message();
    if (is_long) {
      EXPECT_THAT(status.message(),
                  testing::AllOf(testing::HasSubstr("TMPDIR is a path of 101 bytes"),
                                 testing::HasSubstr("has at most 107; set TMPDIR to a shorter")));
    }
  }
}

}  // namespace
}  // namespace hanji::launch
