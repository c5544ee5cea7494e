#include "hanji/launch/inherited.h"

#include <gmock/gmock.h>

#include "hanji/base/file.h"
#include "hanji/launch/launcher.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LaunchOptions options_for(const std::string& what, const std::filesystem::path& logs) {
  LaunchOptions options;
  options.command = {HANJI_LAUNCH_TEST_RANK, what};
  options.ranks = 3;
  options.log_directory = logs;
  options.signals = Signals::kLeave;
  options.segment.heap_bytes_per_rank = 1 << 20;
  options.segment.trace_events = 64;
  return options;
}

std::string log_of(const std::filesystem::path& logs, int rank) {
  return *base::read_file(logs / ("rank." + std::to_string(rank)));
}

TEST(Inherited, EveryRankGetsSegmentPlanAndPeersOnce) {
  const test::TemporaryFolder logs;
  LaunchOptions options = options_for("tell", logs.path());
  options.plan_json = R"({"ranks": 3})";
  const auto outcome = launch(options);
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome->exit_code, 0);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(log_of(logs.path(), rank),
                AllOf(HasSubstr("rank " + std::to_string(rank) + " of 3, 2 peers"),
                      HasSubstr(R"(plan {"ranks": 3})"), HasSubstr("closed on exec true true"),
                      HasSubstr("segment 3"), HasSubstr("again invalid_argument: descriptor"),
                      HasSubstr("was taken before")));
  }
}

TEST(Inherited, AnotherProgramThanTheSegmentsIsRefused) {
  const test::TemporaryFolder logs;
  LaunchOptions options = options_for("tell", logs.path());
  options.program = Program::kThis;
  ASSERT_TRUE(launch(options).ok());
  EXPECT_THAT(log_of(logs.path(), 0),
              AllOf(HasSubstr("segment mismatch"), HasSubstr(build_id_of(Program::kThis))));
}

TEST(Inherited, AReportReachesTheLauncher) {
  const test::TemporaryFolder logs;
  const auto outcome = launch(options_for("fail", logs.path()));
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome->exit_code, 3);
  const RankExit& first = outcome->ranks[outcome->first_failed];
  EXPECT_EQ(first.report.code(), Code::kCorrupt);
  EXPECT_EQ(describe(first), "exited with code 3: corrupt: page 7 of the book");
}

TEST(Inherited, NothingAnnouncedIsNotFound) {
  const auto inherited = inherited_endpoints([](base::Variable) { return std::nullopt; });
  EXPECT_EQ(inherited.status().code(), Code::kNotFound);
}

TEST(Inherited, ClosedDescriptorsAreRefused) {
  const auto inherited = inherited_endpoints([](base::Variable) {
    return "rank=0,size=1,segment=900,control=901,plan=-1,same_program=0";
  });
  EXPECT_EQ(inherited.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(inherited.status().message(), HasSubstr("descriptor 900 (segment)"));
}

TEST(PlanHash, TellsPlansApart) {
  EXPECT_EQ(plan_hash("{}"), plan_hash("{}"));
  EXPECT_NE(plan_hash("{}"), plan_hash(""));
}

}  // namespace
}  // namespace hanji::launch
