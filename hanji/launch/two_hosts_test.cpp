// Several launchers of one run, each with its own ranks: here on the addresses of one host.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <thread>

#include "hanji/base/file.h"
#include "hanji/launch/launcher.h"
#include "hanji/launch/restart.h"
#include "hanji/test/eventually.h"
#include "hanji/test/run_threads.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using testing::AllOf;
using testing::HasSubstr;

class TwoHosts : public testing::Test {
 protected:
  TwoHosts() { choose("127.0.0.1"); }

  bool choose(const std::string& address) {
    const auto probe = base::listen_tcp({address, 0});
    if (!probe.ok()) return false;
    rendezvous_ = base::local_place(probe->get()).or_throw();
    return true;
  }
  /// Of one host: `script` for sh, with this test's folder as $FOLDER.
  LaunchOptions options(int node, const std::string& script, int num_nodes = 2, int ranks = 2) {
    LaunchOptions options;
    options.command = {"sh", "-c", script};
    options.ranks = ranks;
    options.hosts = MultiHost{.num_nodes = num_nodes,
                              .node = node,
                              .rendezvous = rendezvous_,
                              .token = token_,
                              .interface = "",
                              .join_time = 60s};
    options.signals = Signals::kLeave;
    options.environment = {"FOLDER=" + folder_.path().string()};
    options.segment.heap_bytes_per_rank = 1 << 20;
    options.segment.trace_events = 64;
    options.kill_grace = 2s;
    options.on_event = [this](const RankEvent& event) {
      const std::lock_guard lock(mutex_);
      told_ += event.text + "\n";
    };
    return options;
  }
  /// All hosts with the same script; their outcomes.
  std::vector<Outcome> run(const std::string& script, int num_nodes = 2, int ranks = 2) {
    std::vector<Outcome> outcomes(static_cast<size_t>(num_nodes));
    test::run_threads(num_nodes, [&](int node) {
      outcomes[static_cast<size_t>(node)] =
          launch(options(node, script, num_nodes, ranks)).or_throw();
    });
    return outcomes;
  }
  /// Another process is the launcher of this node, so that it can be killed.
  pid_t fork_launcher(int node, const std::string& script) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    const auto outcome = launch(options(node, script));
    ::_exit(outcome.ok() ? outcome->exit_code : 99);
  }
  bool exists(const std::string& name) { return std::filesystem::exists(folder_.path() / name); }
  std::string text_of(const std::string& name) {
    return base::read_file(folder_.path() / name).or_throw();
  }

  base::HostPort rendezvous_;
  Token token_ = make_token().or_throw();
  test::TemporaryFolder folder_;
  std::mutex mutex_;
  std::string told_;
};

constexpr const char* kTellWho =
    "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR "
    ">$FOLDER/who.$RANK; test $MASTER_PORT -gt 0";

TEST_F(TwoHosts, RanksAreNumberedHostByHost) {
  for (const Outcome& outcome : run(kTellWho)) EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(text_of("who.0"), "0/4 0/2 0 127.0.0.1\n");
  EXPECT_EQ(text_of("who.1"), "1/4 1/2 0 127.0.0.1\n");
  EXPECT_EQ(text_of("who.2"), "2/4 0/2 1 127.0.0.1\n");
  EXPECT_EQ(text_of("who.3"), "3/4 1/2 1 127.0.0.1\n");
  EXPECT_THAT(told_, HasSubstr("4 ranks on 2 hosts"));
}

TEST_F(TwoHosts, MeetOverIpv6) {
  if (!choose("::1")) GTEST_SKIP() << "no IPv6 here";
  for (const Outcome& outcome : run(kTellWho)) EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(text_of("who.3"), "3/4 1/2 1 ::1\n");
}

TEST_F(TwoHosts, RanksOfAllHostsReachTheStore) {
  for (const Outcome& outcome : run("exec " HANJI_LAUNCH_TEST_RANK " add_up >$FOLDER/sum.$RANK")) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.cause;
  }
  EXPECT_EQ(text_of("sum.3"), "rank 3 of 4 on node 1 of 2: sum 6\n");
}

TEST_F(TwoHosts, AFailedRankEndsAllHostsWithOneCodeAndCause) {
  const auto begin = base::now_ns();
  const auto outcomes =
      run("if [ $RANK = 2 ]; then sleep 0.2; kill -9 $$; fi; exec sleep 100", 3, 1);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
    EXPECT_THAT(outcome.cause, AllOf(HasSubstr("rank 2 (node 2, host"), HasSubstr("SIGKILL")));
  }
  EXPECT_EQ(outcomes[2].first_failed, 0);
  EXPECT_EQ(outcomes[0].first_failed, -1) << "not here";
  EXPECT_LT(std::chrono::nanoseconds(base::now_ns() - begin), 20s);
}

TEST_F(TwoHosts, AnExitCodeIsTheSameOnAllHosts) {
  for (const Outcome& outcome : run("test $RANK != 1 || exit 3; exec sleep 100")) {
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_THAT(outcome.cause, HasSubstr("rank 1 (node 0"));
  }
}

TEST_F(TwoHosts, AHostThatIsDoneStaysUntilAllAre) {
  const auto outcomes = run("test $GROUP_RANK = 0 && exit 0; sleep 0.5; exit 4");
  EXPECT_EQ(outcomes[0].exit_code, 4) << "its own ranks had ended well";
  EXPECT_EQ(outcomes[1].exit_code, 4);
}

TEST_F(TwoHosts, AKilledLauncherIsNamedByTheOthers) {
  const pid_t other = fork_launcher(1, "touch $FOLDER/up.$RANK; exec sleep 100");
  std::thread kills([&] {
    EXPECT_TRUE(eventually([&] { return exists("up.3"); }));
    ::kill(other, SIGKILL);
  });
  const auto outcome = launch(options(0, "exec sleep 100"));
  kills.join();
  ::waitpid(other, nullptr, 0);
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  EXPECT_EQ(outcome->exit_code, 6);
  EXPECT_THAT(outcome->cause, AllOf(HasSubstr("node 1 (host"), HasSubstr("launcher is gone")));
}

TEST_F(TwoHosts, AKilledFirstLauncherIsNamedByTheOthers) {
  const pid_t first = fork_launcher(0, "touch $FOLDER/up.$RANK; exec sleep 100");
  std::thread kills([&] {
    EXPECT_TRUE(eventually([&] { return exists("up.1"); }));
    ::kill(first, SIGKILL);
  });
  const auto outcome = launch(options(1, "exec sleep 100"));
  kills.join();
  ::waitpid(first, nullptr, 0);
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  EXPECT_EQ(outcome->exit_code, 6);
  EXPECT_THAT(outcome->cause, HasSubstr("node 0 is lost"));
}

TEST_F(TwoHosts, ASignalToOneLauncherReachesTheRanksOfAll) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const std::string script =
      "trap 'echo $RANK >$FOLDER/term.$RANK; exit 75' TERM; touch $FOLDER/up.$RANK; "
      "while :; do sleep 0.05; done";
  std::thread says([&] {
    EXPECT_TRUE(eventually([&] { return exists("up.0") && exists("up.1"); }));
    EXPECT_EQ(::write(ends[1], "TERM\n", 5), 5);
  });
  test::run_threads(2, [&](int node) {
    LaunchOptions own = options(node, script, 2, 1);
    if (node == 1) own.hosts->lifeline = ends[0];
    EXPECT_EQ(launch(own).or_throw().exit_code, 75);
  });
  says.join();
  EXPECT_TRUE(exists("term.0") && exists("term.1"));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(TwoHosts, TheEndOfItsLifelineEndsTheRun) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  std::thread leaves([&] {
    EXPECT_TRUE(eventually([&] { return exists("up.1"); }));
    ::close(ends[1]);
  });
  test::run_threads(2, [&](int node) {
    LaunchOptions own = options(node, "touch $FOLDER/up.$RANK; exec sleep 100", 2, 1);
    if (node == 1) own.hosts->lifeline = ends[0];
    const Outcome outcome = launch(own).or_throw();
    EXPECT_EQ(outcome.exit_code, 6);
    EXPECT_THAT(outcome.cause, HasSubstr("who started the launcher of node 1"));
  });
  leaves.join();
  ::close(ends[0]);
}

TEST_F(TwoHosts, AHostThatDoesNotComeIsNamed) {
  LaunchOptions alone = options(0, "true", 3);
  alone.hosts->join_time = 500ms;
  const auto outcome = launch(alone);
  EXPECT_EQ(outcome.status().code(), Code::kTimeout);
  EXPECT_THAT(outcome.status().message(),
              AllOf(HasSubstr("missing: node 1, 2"), HasSubstr("--node-rank")));
}

TEST_F(TwoHosts, AWrongTokenIsRefusedWhileTheRunStarts) {
  std::thread first([&] { EXPECT_EQ(launch(options(0, "true")).or_throw().exit_code, 0); });
  LaunchOptions stranger = options(1, "true");
  stranger.hosts->token[0] ^= std::byte{1};
  const auto refused = launch(stranger);
  EXPECT_EQ(refused.status().code(), Code::kMismatch);
  EXPECT_THAT(refused.status().message(), HasSubstr("token"));
  EXPECT_EQ(launch(options(1, "true")).or_throw().exit_code, 0);
  first.join();
  EXPECT_THAT(told_, HasSubstr("refused a connection from 127.0.0.1"));
}

TEST_F(TwoHosts, TwoLaunchersOfOneNodeAreRefused) {
  const std::string script =
      "touch $FOLDER/up.$RANK; while ! test -e $FOLDER/go; do sleep 0.05; done";
  std::thread good([&] {
    for (const Outcome& outcome : run(script)) EXPECT_EQ(outcome.exit_code, 0);
  });
  EXPECT_TRUE(eventually([&] { return exists("up.3"); }));
  const auto second = launch(options(1, "true"));
  EXPECT_EQ(second.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(second.status().message(), HasSubstr("here already"));
  std::ofstream(folder_.path() / "go");
  good.join();
}

TEST_F(TwoHosts, ACommandThatCannotStartEndsTheOthersToo) {
  test::run_threads(2, [&](int node) {
    LaunchOptions own = options(node, "exec sleep 100");
    if (node == 1) own.command = {"/no/such/program"};
    const auto outcome = launch(own);
    EXPECT_EQ(outcome.ok(), node == 0);
    if (outcome.ok()) {
      EXPECT_EQ(outcome->exit_code, 2);
      EXPECT_THAT(outcome->cause, HasSubstr("node 1"));
    }
  });
}

TEST_F(TwoHosts, AreNotStartedAgain) {
  const auto outcome = launch_with_restarts(options(0, "true"), {.max_restarts = 1});
  EXPECT_EQ(outcome.status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace hanji::launch
