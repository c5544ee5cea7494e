#include "hanji/checkpoint/saver.h"

#include <gmock/gmock.h>

#include <memory>

#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/internal/test_state.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

using internal::TestState;
using testing::HasSubstr;

TEST(Saver, SavesTheStateAsItWasUntilItWasCopied) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState before(1);
  TestState state(1);
  Saver saver({.folder = temporary.path()});
  ASSERT_TRUE(saver.save(state.state(), {.step = 1}).ok());
  saver.wait_copied();
  for (std::byte& byte : state.first_bytes()) byte = std::byte{0};  // Training goes on.
  ASSERT_TRUE(saver.wait().ok());
  const auto loaded = load_checkpoint(temporary.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(holds(*loaded, before));
}

TEST(Saver, WithASmallCopySavesTheSameAndHoldsTheUpdateUntilTheLastOfItIsCopied) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  for (const int64_t copy_bytes : {1, 100, 4096}) {
    const TestState before(3);
    TestState state(3);
    Saver saver({.folder = temporary.path(), .copy_bytes = copy_bytes});
    ASSERT_TRUE(saver.save(state.state(), {.step = 1}).ok());
    saver.wait_copied();
    EXPECT_EQ(saver.copy_bytes(), copy_bytes);
    for (std::byte& byte : state.first_bytes()) byte = std::byte{0};
    ASSERT_TRUE(saver.wait().ok());
    EXPECT_TRUE(holds(*load_checkpoint(temporary.path()), before)) << copy_bytes;
  }
}

TEST(Saver, SavesOneAfterTheOther) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  Saver saver({.folder = temporary.path()});
  for (uint32_t step = 1; step <= 5; ++step) {
    const auto state = std::make_shared<TestState>(step);
    State saved = state->state();
    saved.model[0].read = [state, read = saved.model[0].read](int64_t first, auto to) {
      read(first, to);
    };
    ASSERT_TRUE(saver.save(std::move(saved), {.step = step}).ok());
  }
  ASSERT_TRUE(saver.wait().ok());
  EXPECT_EQ(saver.times().blocked_seconds.size(), 5u);
  EXPECT_EQ(saver.times().written_seconds.size(), 5u);
  EXPECT_GT(saver.times().blocked_seconds.back(), 0);
  EXPECT_TRUE(holds(*load_checkpoint(temporary.path()), TestState(5)));
  EXPECT_EQ(list_checkpoints(temporary.path())->size(), 3u);
}

TEST(Saver, EndsItsSaveWhenItGoes) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(4);
  { ASSERT_TRUE(Saver({.folder = temporary.path()}).save(state.state(), {.step = 9}).ok()); }
  EXPECT_TRUE(holds(*load_checkpoint(temporary.path()), state));
}

TEST(Saver, TellsAnErrorOnceAtTheNextCall) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const std::filesystem::path folder = temporary.path() / "checkpoints";
  internal::write_bytes(folder, "a file is in the way");
  const TestState state(1);
  Saver saver({.folder = folder});
  ASSERT_TRUE(saver.save(state.state(), {.step = 1}).ok());
  EXPECT_THAT(saver.wait().message(), HasSubstr("checkpoints"));
  EXPECT_TRUE(saver.wait().ok());

  std::filesystem::remove(folder);
  ASSERT_TRUE(saver.save(state.state(), {.step = 3}).ok());
  ASSERT_TRUE(saver.wait().ok());
  EXPECT_TRUE(holds(*load_checkpoint(folder), state));
}

TEST(Saver, ReportsTheFailureBeforeAndSavesAllTheSame) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(1);
  Saver saver({.folder = temporary.path()});
  ASSERT_TRUE(saver.save(state.state(), {.step = -1}).ok());  // Refused by the writer.
  const Status before = saver.save(state.state(), {.step = 7});
  EXPECT_EQ(before.code(), Code::kInvalidArgument);
  EXPECT_TRUE(saver.wait().ok());
  EXPECT_EQ(load_checkpoint(temporary.path())->manifest.step, 7);
}

TEST(Saver, RecordsTheCopyAndTheWriting) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  std::vector<std::byte> memory(trace::Recorder::bytes_for(64) + 64);
  void* at = memory.data();
  size_t room = memory.size();
  std::align(64, memory.size() - 64, at, room);
  auto recorder = trace::Recorder::format({static_cast<std::byte*>(at), memory.size() - 64}, 0, 1);
  const TestState state(1);
  Saver saver({.folder = temporary.path()}, &recorder);
  ASSERT_TRUE(saver.save(state.state(), {.step = 1}).ok());
  ASSERT_TRUE(saver.wait().ok());
  const auto events = recorder.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(recorder.name(events[0].name), "checkpoint copy");
  EXPECT_EQ(recorder.name(events[1].name), "checkpoint write");
  EXPECT_EQ(events[1].lane, trace::Lane::kCheckpoint);
  EXPECT_EQ(events[1].bytes, state.state().num_bytes());
}

}  // namespace
}  // namespace hanji::checkpoint
