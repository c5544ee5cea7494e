#include "hanji/cli/exercises/command_runner.h"

#include <gmock/gmock.h>
#include <signal.h>

#include "hanji/base/file.h"
#include "hanji/test/eventually.h"

namespace hanji::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

std::optional<int> no_signal() { return std::nullopt; }

/// Whether a process is gone, or only waits to be reaped by another than us.
bool has_ended(const std::string& pid) {
  const auto stat = base::read_file("/proc/" + pid + "/stat");
  return !stat.ok() || stat->find(") Z ") != std::string::npos;
}

TEST(ExerciseCommands, GiveBothStreamsAndTheCodeOrSignal) {
  CommandRunner runner(no_signal);
  const CommandEnd end = runner.run({"sh", "-c", "echo one; echo two >&2; pwd; exit 3"}, "/", 30s);
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_FALSE(end.timed_out);
  EXPECT_EQ(end.output, "one\ntwo\n/\n");
  EXPECT_EQ(runner.run({"sh", "-c", "kill -9 $$"}, "/", 30s).exit_code, 128 + SIGKILL);
  EXPECT_EQ(runner.run({"sh", "-c", "read line"}, "/", 30s).exit_code, 1);  // stdin is empty
  EXPECT_THROW(runner.run({"no_such_program"}, "/", 30s), Error);
}

TEST(ExerciseCommands, FindThisProgramsFolderFirst) {
  CommandRunner runner(no_signal);
  EXPECT_THAT(runner.run({"sh", "-c", "echo $PATH"}, "/", 30s).output,
              StartsWith(base::executable_path().or_throw().parent_path().string() + ":"));
}

TEST(ExerciseCommands, EndWithTheirDeadlineAndWhatTheyLeftBehind) {
  CommandRunner runner(no_signal);
  const CommandEnd end = runner.run({"sh", "-c", "sleep 100 & echo $!; sleep 100"}, "/", 1s);
  EXPECT_TRUE(end.timed_out);
  const std::string left = last_lines(end.output, 1);
  EXPECT_TRUE(test::eventually([&] { return has_ended(left); }));
  const std::string behind =
      last_lines(runner.run({"sh", "-c", "sleep 100 & echo $!"}, "/", 30s).output, 1);
  EXPECT_TRUE(test::eventually([&] { return has_ended(behind); }));
}

TEST(ExerciseCommands, EndWithAStopSignal) {
  CommandRunner runner([] { return SIGTERM; });
  EXPECT_THROW(runner.run({"sleep", "100"}, "/", 30s), Error);
  EXPECT_EQ(runner.stop_signal(), SIGTERM);
}

TEST(ExerciseCommands, TheLastLinesAreTheLast) {
  EXPECT_EQ(last_lines("a\nb\nc\n\n", 2), "b\nc");
  EXPECT_EQ(last_lines("a", 2), "a");
  EXPECT_EQ(last_lines("", 2), "");
}

}  // namespace
}  // namespace hanji::cli
