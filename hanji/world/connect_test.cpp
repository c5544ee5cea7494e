#include "hanji/world/connect.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/tcp.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/gloo/group.h"
#include "hanji/cost/stored.h"
#include "hanji/cost/usage.h"
#include "hanji/launch/environment.h"
#include "hanji/launch/launcher.h"
#include "hanji/test/run_processes.h"
#include "hanji/test/run_threads.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/topology/machine.h"

namespace hanji::world {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// What the program prints with these variables, in the syntax of sh, and no others of launchers.
std::string output_with(const std::string& variables, const std::string& argument = "") {
  const std::string command = "env -i PATH=$PATH LD_LIBRARY_PATH=$LD_LIBRARY_PATH " + variables +
                              " " + HANJI_WORLD_TEST_RANK + " " + argument + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::string output;
  std::array<char, 256> piece;
  while (std::fgets(piece.data(), piece.size(), pipe) != nullptr) output += piece.data();
  ::pclose(pipe);
  return output;
}

class Connect : public testing::Test {
 protected:
  /// Starts `ranks` programs at once; `variables` makes a rank's.
  std::vector<std::string> outputs(
      int ranks, const std::function<std::string(const std::string&)>& variables) {
    const std::string here = "XDG_RUNTIME_DIR=" + folder_.path().string() + " ";
    return test::run_processes(
        ranks, [&](int rank) { return output_with(here + variables(std::to_string(rank))); });
  }

  test::TemporaryFolder folder_;
};

TEST_F(Connect, AloneIsAWorldOfOne) { EXPECT_EQ(output_with(""), "rank 0 of 1 sums 0 plan ''\n"); }

TEST_F(Connect, UnderTorchrun) {
  const auto said = outputs(3, [](const std::string& rank) {
    return "RANK=" + rank + " LOCAL_RANK=" + rank +
           " WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
           "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0";
  });
  EXPECT_EQ(said[0], "rank 0 of 3 sums 3 plan ''\n");
  EXPECT_EQ(said[2], "rank 2 of 3 sums 3 plan ''\n");
}

TEST_F(Connect, UnderMpirun) {
  const auto said = outputs(2, [](const std::string& rank) {
    return "OMPI_COMM_WORLD_RANK=" + rank + " OMPI_COMM_WORLD_LOCAL_RANK=" + rank +
           " OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=193";
  });
  EXPECT_EQ(said[1], "rank 1 of 2 sums 1 plan ''\n");
}

TEST_F(Connect, UnderSrun) {
  const auto said = outputs(2, [](const std::string& rank) {
    return "SLURM_PROCID=" + rank + " SLURM_LOCALID=" + rank +
           " SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=4 SLURM_STEP_NUM_NODES=1 SLURM_NNODES=2 "
           "SLURM_JOB_ID=7 SLURM_STEP_ID=0";
  });
  EXPECT_EQ(said[1], "rank 1 of 2 sums 1 plan ''\n");
}

TEST_F(Connect, UnderHanjiWithAPlan) {
  launch::LaunchOptions options;
  options.command = {HANJI_WORLD_TEST_RANK};
  options.ranks = 2;
  options.plan_json = "{}";
  options.log_directory = folder_.path();
  options.signals = launch::Signals::kLeave;
  const auto outcome = launch::launch(options);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_EQ(*base::read_file(folder_.path() / "rank.0"), "rank 0 of 2 sums 1 plan '{}'\n");
  EXPECT_EQ(*base::read_file(folder_.path() / "rank.1"), "rank 1 of 2 sums 1 plan '{}'\n");
}

/// What two ranks that torchrun has started tell, each pinned to cores of its own if there are two.
std::vector<std::string> costs_of_two(const std::filesystem::path& folder) {
  const auto cpus = topology::cpus_per_rank(topology::read_machine().or_throw(), 2);
  return test::run_processes(2, [&](int rank) {
    const std::string pin =
        cpus.empty() ? "" : fmt::format("taskset -c {} ", fmt::join(cpus[rank], ","));
    return output_with(
        fmt::format("XDG_RUNTIME_DIR={0} HANJI_CACHE_DIR={0} RANK={1} LOCAL_RANK={1} "
                    "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
                    "MASTER_PORT=29500 {2}",
                    folder.string(), rank, pin),
        "costs");
  });
}

TEST_F(Connect, ChoosesByTheCostsThatWereFittedOnThisMachine) {
  EXPECT_EQ(costs_of_two(folder_.path())[1], "rank 1: typical, 0.000 s a call\n");
  // Pinned ranks use one CPU of each core: a machine of those alone has the same cores.
  cost::StoredCosts stored{.stamp = cost::stamp_of(topology::read_machine().or_throw(), 2),
                           .fitted_at = base::wall_ns() / 1'000'000'000,
                           .fit_seconds = 1,
                           .costs = cost::assumed_costs(2, 2)};
  stored.costs.call_seconds = 0.125;
  ASSERT_TRUE(cost::save_costs(folder_.path(), stored).ok());
  const auto told = costs_of_two(folder_.path());
  EXPECT_EQ(told[0], "rank 0: fitted, 0.125 s a call\n");
  EXPECT_EQ(told[1], "rank 1: fitted, 0.125 s a call\n");
  stored.stamp.kernel = "0.0.1";
  ASSERT_TRUE(cost::save_costs(folder_.path(), stored).ok());
  EXPECT_EQ(costs_of_two(folder_.path())[0], "rank 0: typical, 0.000 s a call\n") << "stale";
}

TEST_F(Connect, ContradictionsAreRefused) {
  EXPECT_THAT(output_with("RANK=1"), HasSubstr("WORLD_SIZE (not set)"));
}

TEST_F(Connect, SeveralHostsNeedASecret) {
  EXPECT_THAT(output_with("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 "
                          "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500"),
              HasSubstr("HANJI_TOKEN_FILE"));
}

/// Two launchers, each with two ranks; on the loopback, as if they were two hosts.
class TwoHosts : public Connect {
 protected:
  void SetUp() override {
    if (!comm::gloo::available()) GTEST_SKIP() << "this libtorch has no Gloo";
    const auto probe = base::listen_tcp({"127.0.0.1", 0});
    place_ = base::local_place(probe->get()).or_throw();
  }

  std::vector<launch::Outcome> launch(const std::vector<std::string>& arguments) {
    const launch::Token token = launch::make_token().or_throw();
    std::vector<launch::Outcome> outcomes(2);
    test::run_threads(2, [&](int node) {
      launch::LaunchOptions options;
      options.command = {HANJI_WORLD_TEST_RANK};
      options.command.insert(options.command.end(), arguments.begin(), arguments.end());
      options.ranks = 2;
      options.plan_json = "{}";
      options.log_directory = folder_.path();
      options.signals = launch::Signals::kLeave;
      options.verdict_time = std::chrono::seconds(30);  // survivors say it late on a busy machine
      options.hosts = launch::MultiHost{
          .num_nodes = 2, .node = node, .rendezvous = place_, .token = token, .interface = ""};
      outcomes[static_cast<size_t>(node)] = launch::launch(options).or_throw();
    });
    return outcomes;
  }
  std::string log(int rank) const {
    return base::read_file(folder_.path() / fmt::format("rank.{}", rank)).or_throw();
  }

  base::HostPort place_;
};

TEST_F(TwoHosts, UnderHanji) {
  for (const auto& outcome : launch({})) EXPECT_EQ(outcome.exit_code, 0) << outcome.cause;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(log(rank), fmt::format("2 nodes, shm + gloo, local rank {}: rank {} of 4 sums 6 plan "
                                     "'{{}}'\n",
                                     rank % 2, rank));
  }
}

TEST_F(TwoHosts, ADeadRankIsNamedOnTheOtherHost) {
  for (const auto& outcome : launch({"die"})) {
    EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
    EXPECT_THAT(outcome.cause, HasSubstr("rank 3"));
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(log(rank), HasSubstr("rank 3")) << "rank " << rank;
  }
}

/// As torchrun starts `ranks` on two hosts; what each rank prints.
class UnderTorchrun : public TwoHosts {
 protected:
  std::vector<std::string> outputs_of(int ranks, const std::string& argument = "") {
    const auto secret = folder_.path() / "token";
    EXPECT_TRUE(base::write_file_atomic(secret, std::string(64, 'a')).ok());
    std::filesystem::permissions(secret, std::filesystem::perms::owner_read);
    const int here = ranks / 2;
    return test::run_processes(ranks, [&](int rank) {
      const auto own = folder_.path() / std::to_string(rank / here);
      std::filesystem::create_directories(own);
      return output_with(
          fmt::format(
              "XDG_RUNTIME_DIR={} RANK={} WORLD_SIZE={} LOCAL_RANK={} LOCAL_WORLD_SIZE={} "
              "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 HANJI_RENDEZVOUS={} HANJI_TOKEN_FILE={}",
              own.string(), rank, ranks, rank % here, here, base::to_text(place_), secret.string()),
          argument);
    });
  }
};

TEST_F(UnderTorchrun, TwoHostsOfTwoMeet) {
  const auto said = outputs_of(4);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(said[rank],
              fmt::format("2 nodes, shm + gloo, local rank {}: rank {} of 4 sums 6 plan ''\n",
                          rank % 2, rank));
  }
}

TEST_F(UnderTorchrun, ADeadRankIsNamedOnTheOtherHost) {
  // Alone on its host nobody sees it die but the server, which is rank 0 itself; and one of two.
  const std::pair<int, int> ranks_and_victims[] = {{2, 1}, {2, 0}, {4, 3}};
  for (const auto& [ranks, victim] : ranks_and_victims) {
    const auto said = outputs_of(ranks, fmt::format("'die {}'", victim));
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(said[rank], testing::ContainsRegex(
                                  fmt::format("rank {} .host [^)]+. (is lost|died)", victim)))
          << rank << " of " << ranks;
      EXPECT_THAT(said[rank], testing::Not(HasSubstr("closed by peer"))) << rank << " of " << ranks;
    }
    place_ = base::local_place(base::listen_tcp({"127.0.0.1", 0})->get()).or_throw();
  }
}

TEST(ConnectAs, RefusesSeveralHosts) {
  launch::Identity identity;
  identity.world_size = 2;
  EXPECT_THROW(connect_as(identity), Error);
}

TEST(ConnectAs, MeetsByItsJobIdAgainAndAgain) {
  const auto said = test::run_processes(2, [here = ::getpid()](int rank) {
    int sum = 0;
    for (int turn = 0; turn < 2; ++turn) {
      launch::Identity identity;
      identity.rank = identity.local_rank = rank;
      identity.world_size = identity.local_size = 2;
      identity.job_id = "connect_as " + std::to_string(here) + " " + std::to_string(turn);
      const World world = connect_as(identity);
      at::Tensor tensor = at::full({3}, rank + 1, at::kLong);
      comm::all_reduce(tensor, world.group()).wait();
      sum += static_cast<int>(tensor[2].item<int64_t>());
    }
    return std::to_string(sum);
  });
  EXPECT_EQ(said, (std::vector<std::string>{"6", "6"}));
}

}  // namespace
}  // namespace hanji::world
