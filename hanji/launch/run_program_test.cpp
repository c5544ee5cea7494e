#include "hanji/launch/run_program.h"

#include <gmock/gmock.h>

#include <string>

namespace hanji::launch {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

const auto in_time = [] { return base::Deadline::after(std::chrono::seconds(30)); };

TEST(RunProgram, GivesItsInputAndTakesItsOutput) {
  const std::string much(200'000, 'x');  // more than a pipe holds
  EXPECT_EQ(run_program({"cat"}, much, in_time()).or_throw(), much);
  EXPECT_EQ(run_program({"true"}, "unread", in_time()).or_throw(), "");
}

TEST(RunProgram, AFailureIsItsExitCodeOrSignal) {
  EXPECT_THAT(run_program({"sh", "-c", "exit 3"}, "", in_time()).status().message(),
              HasSubstr("sh -c exited with code 3"));
  EXPECT_THAT(run_program({"sh", "-c", "kill -9 $$"}, "", in_time()).status().message(),
              HasSubstr("signal 9"));
  EXPECT_THAT(run_program({"no_such_program"}, "", in_time()).status().message(),
              HasSubstr("start no_such_program"));
}

TEST(RunProgram, AtItsDeadlineIsKilled) {
  const auto late = run_program({"sleep", "100"}, "", base::Deadline::after(milliseconds(50)));
  EXPECT_EQ(late.status().code(), Code::kTimeout);
}

}  // namespace
}  // namespace hanji::launch
