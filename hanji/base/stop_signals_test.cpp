#include "hanji/base/stop_signals.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace hanji::base {
namespace {

using testing::Contains;
using testing::Not;
using testing::UnorderedElementsAreArray;

/// The exit code of a child of this process that runs `body`, or 128 + the signal that ended it.
int code_of_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(StopSignals, OneThatTheStarterIgnoresStaysIgnoredExceptInt) {
  EXPECT_EQ(code_of_child([] {
              for (const int signal : kStopSignals) ::signal(signal, SIG_DFL);
              return testing::Value(obeyed_stop_signals(), UnorderedElementsAreArray(kStopSignals))
                         ? 0
                         : 1;
            }),
            0);
  for (const int ignored : kStopSignals) {
    EXPECT_EQ(code_of_child([&] {
                for (const int signal : kStopSignals) ::signal(signal, SIG_DFL);
                ::signal(ignored, SIG_IGN);
                const bool obeys = testing::Value(obeyed_stop_signals(), Contains(ignored));
                return obeys == (ignored == SIGINT) ? 0 : 1;
              }),
              0)
        << ignored;
  }
}

TEST(StopSignals, AChildDoesNotRunTheHandlersOfItsLauncher) {
  const auto raised_in_child = [](bool held) {
    return code_of_child([held] {
      ::signal(SIGUSR2, [](int) { ::_exit(99); });
      reset_stop_signals(held);
      ::raise(SIGUSR2);
      return 7;
    });
  };
  EXPECT_EQ(raised_in_child(false), 128 + SIGUSR2);
  EXPECT_EQ(raised_in_child(true), 7);  // pending
}

TEST(StopSignals, AreHeldDuringAScopeOnly) {
  EXPECT_EQ(code_of_child([] {
              ::signal(SIGHUP, [](int) { ::_exit(99); });
              {
                const HeldStopSignals held;
                ::raise(SIGHUP);
              }
              return 7;
            }),
            99);
}

}  // namespace
}  // namespace hanji::base
