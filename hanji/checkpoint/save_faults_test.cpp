#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "hanji/base/file.h"
#include "hanji/base/units.h"
#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/internal/kill_at_call.h"
#include "hanji/checkpoint/internal/test_state.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;
using internal::TestState;
using internal::write_bytes;
using testing::HasSubstr;

struct Case {
  const char* name;
  std::vector<int64_t> before;  // Steps saved before.
  int64_t step;                 // The step whose save is killed.
  int keep;
};

class KilledSave : public testing::TestWithParam<Case> {
 protected:
  Status save(int64_t step, const TestState& state) const {
    return save_checkpoint({.folder = folder(), .keep = GetParam().keep, .keep_best = false},
                           state.state(), {.step = step});
  }
  fs::path folder() const { return temporary_.path() / "checkpoints"; }

  // Whatever the moment, what loads is the last state or the new one, bit for bit.
  void expect_old_or_new(const TestState& old_state, const TestState& new_state) const {
    const auto loaded = load_checkpoint(folder());
    if (GetParam().before.empty() && !loaded.ok()) {
      EXPECT_EQ(loaded.status().code(), Code::kNotFound) << loaded.status().message();
      return;
    }
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_TRUE(holds(*loaded, old_state) || holds(*loaded, new_state));
    EXPECT_TRUE(loaded->refused.empty()) << loaded->refused.front().message();
  }

  test::TemporaryFolder temporary_{internal::folder_in_memory()};
};

TEST_P(KilledSave, LeavesTheOldOrTheNewStateAtEveryCall) {
  const Case& c = GetParam();
  const TestState old_state(1);
  const TestState new_state(2);
  const TestState next_state(3);
  for (const int64_t step : c.before) ASSERT_TRUE(save(step, old_state).ok());
  fs::create_directories(folder());
  const fs::path start = temporary_.path() / "start";
  fs::rename(folder(), start);
  for (int call = 1;; ++call) {
    SCOPED_TRACE(testing::Message() << "killed at call " << call);
    fs::remove_all(folder());
    fs::copy(start, folder(), fs::copy_options::recursive);
    const auto ending = internal::kill_at_call(call, [&] {
      if (!save(c.step, new_state).ok()) ::_exit(1);
    });
    expect_old_or_new(old_state, new_state);
    // The next run's save clears what was left and ends whole.
    ASSERT_TRUE(save(c.step + 1, next_state).ok());
    const auto after = load_checkpoint(folder());
    ASSERT_TRUE(after.ok()) << after.status().message();
    EXPECT_TRUE(holds(*after, next_state));
    for (const auto& entry : fs::directory_iterator(folder())) {
      const bool leftover = entry.is_directory() && entry.path().filename().native()[0] == '.';
      EXPECT_FALSE(leftover) << entry.path();
    }
    if (!ending.killed) {
      EXPECT_GT(ending.num_calls, 15) << "fewer calls than a save must make were seen";
      break;
    }
    ASSERT_LT(call, 500);
  }
}

INSTANTIATE_TEST_SUITE_P(Saves, KilledSave,
                         testing::Values(Case{"First", {}, 1, 3}, Case{"Next", {1}, 2, 3},
                                         Case{"Pruning", {1}, 2, 1}, Case{"Replacing", {2}, 2, 1}),
                         [](const auto& info) { return info.param.name; });

// Runs `work` in a child that may write files of at most `bytes`; returns its exit status.
int with_file_limit(rlim_t bytes, const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    ::_exit(work());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SaveFaults, ADiskThatFillsUpAtAnyByteKeepsTheOldOnes) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const SaveOptions options{.folder = temporary.path()};
  const TestState old_state(1);
  const TestState new_state(2);
  ASSERT_TRUE(save_checkpoint(options, old_state.state(), {.step = 1}).ok());
  for (rlim_t limit = 0; limit < 4200; limit += 97) {
    SCOPED_TRACE(testing::Message() << "room for " << limit << " bytes a file");
    const int failed = with_file_limit(limit, [&] {
      return save_checkpoint(options, new_state.state(), {.step = 2}).ok() ? 0 : 1;
    });
    EXPECT_EQ(failed, 1);
    EXPECT_FALSE(fs::exists(unfinished_path(options.folder, 2)));
    const auto loaded = load_checkpoint(options.folder);
    ASSERT_TRUE(loaded.ok());
    EXPECT_TRUE(holds(*loaded, old_state));
    EXPECT_TRUE(loaded->refused.empty());
  }
}

TEST(SaveFaults, TooLittleRoomIsKnownBeforeAnythingIsWritten) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  // A state that claims more than any disk; not a byte of it is ever read.
  const State state{.model = {{"huge", DType::kUInt8, {int64_t{1} << 50}, {0, int64_t{1} << 50}}},
                    .optimizer = {}};
  const Status status = save_checkpoint({.folder = temporary.path()}, state, {.step = 1});
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_THAT(status.message(), HasSubstr("a checkpoint takes 1.13 PB"));
  EXPECT_TRUE(fs::is_empty(temporary.path()));
}

TEST(SaveFaults, ACheckpointNeedsLittleRoomBesideItsTensors) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const int64_t free = base::free_bytes(temporary.path()).or_throw();
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_TRUE(check_room(temporary.path(), {}, {free - 2 * kMiB, 80}).ok());
  const Status status = check_room(temporary.path(), {.keep = 1}, {free + kMiB, 80});
  EXPECT_THAT(status.message(), HasSubstr("a checkpoint takes " + base::format_bytes(free + kMiB)));
  EXPECT_THAT(status.message(), testing::EndsWith("free; make room"));
}

TEST(SaveFaults, APathThatIsAFileIsAnErrorAndNotACrash) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  write_bytes(temporary.path() / "file", "x");
  const TestState state(1);
  EXPECT_FALSE(
      save_checkpoint({.folder = temporary.path() / "file"}, state.state(), {.step = 1}).ok());
}

// Root writes where nobody may: the child gives that up first, so both users test the same.
TEST(SaveFaults, AReadOnlyFolderKeepsWhatItHolds) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const fs::path folder = temporary.path() / "checkpoints";
  const TestState old_state(1);
  ASSERT_TRUE(save_checkpoint({.folder = folder}, old_state.state(), {.step = 1}).ok());
  ::chmod(temporary.path().c_str(), 0755);
  ::chmod(folder.c_str(), 0555);
  const int failed = with_file_limit(RLIM_INFINITY, [&] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) return 2;
    const TestState new_state(2);
    return save_checkpoint({.folder = folder}, new_state.state(), {.step = 2}).ok() ? 0 : 1;
  });
  ::chmod(folder.c_str(), 0755);
  EXPECT_EQ(failed, 1);
  const auto loaded = load_checkpoint(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(holds(*loaded, old_state));
}

}  // namespace
}  // namespace hanji::checkpoint
