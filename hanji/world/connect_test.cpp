#include "hanji/world/connect.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>

#include "hanji/base/file.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/launch/environment.h"
#include "hanji/launch/launcher.h"
#include "hanji/test/run_processes.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::world {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// What the program prints with these variables, in the syntax of sh, and no others of launchers.
std::string output_with(const std::string& variables) {
  const std::string command = "env -i PATH=$PATH LD_LIBRARY_PATH=$LD_LIBRARY_PATH " + variables +
                              " " + HANJI_WORLD_TEST_RANK + " 2>&1";
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

TEST_F(Connect, ContradictionsAndSeveralHostsAreRefused) {
  EXPECT_THAT(output_with("RANK=1"), HasSubstr("WORLD_SIZE (not set)"));
  EXPECT_THAT(output_with("RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_PORT=1"),
              AllOf(HasSubstr("torchrun started 2 of 4 ranks on this host")));
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
