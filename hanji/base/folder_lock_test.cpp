#include "hanji/base/folder_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "hanji/test/temporary_folder.h"

namespace hanji::base {
namespace {

using namespace std::chrono_literals;

Result<FolderLock> take(const std::filesystem::path& folder,
                        std::chrono::nanoseconds patience = {}) {
  return FolderLock::take(folder, Deadline::after(patience));
}

TEST(FolderLock, KeepsOthersOutWhileItLives) {
  const test::TemporaryFolder folder;
  std::optional<FolderLock> first = take(folder.path()).or_throw();
  EXPECT_EQ(take(folder.path(), 20ms).status().code(), Code::kTimeout);
  first.reset();
  EXPECT_TRUE(take(folder.path()).ok());
}

TEST(FolderLock, IsGivenBackByAKilledProcess) {
  const test::TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = take(folder.path());
    if (::write(ready[1], "x", held.ok() ? 1 : 0) != 1) ::_exit(1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(take(folder.path()).ok());
  ::kill(child, SIGKILL);
  EXPECT_TRUE(take(folder.path(), 10s).ok());
  ::waitpid(child, nullptr, 0);
}

TEST(FolderLock, NeedsAFolder) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(take(folder.path() / "none").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace hanji::base
