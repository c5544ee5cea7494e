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
  saver.save(state.state(), {.step = 1});
  saver.wait_copied();
  for (std::byte& byte : state.first_bytes()) byte = std::byte{0};  // Training goes on.
  ASSERT_TRUE(saver.wait().back().status.ok());
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
    saver.save(state.state(), {.step = 1});
    saver.wait_copied();
    EXPECT_EQ(saver.copy_bytes(), copy_bytes);
    for (std::byte& byte : state.first_bytes()) byte = std::byte{0};
    ASSERT_TRUE(saver.wait().back().status.ok());
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
    saver.save(std::move(saved), {.step = step});
  }
  ASSERT_TRUE(saver.wait().back().status.ok());
  EXPECT_EQ(saver.times().blocked_seconds.size(), 5u);
  EXPECT_EQ(saver.times().written_seconds.size(), 5u);
  EXPECT_GT(saver.times().blocked_seconds.back(), 0);
  EXPECT_TRUE(holds(*load_checkpoint(temporary.path()), TestState(5)));
  EXPECT_EQ(list_checkpoints(temporary.path())->size(), 3u);
}

TEST(Saver, EndsItsSaveWhenItGoes) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(4);
  { Saver({.folder = temporary.path()}).save(state.state(), {.step = 9}); }
  EXPECT_TRUE(holds(*load_checkpoint(temporary.path()), state));
}

TEST(Saver, TellsAnErrorOnce) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const std::filesystem::path folder = temporary.path() / "checkpoints";
  internal::write_bytes(folder, "a file is in the way");
  const TestState state(1);
  Saver saver({.folder = folder});
  saver.save(state.state(), {.step = 1});
  const auto ended = saver.wait();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].step, 1);
  EXPECT_THAT(ended[0].status.message(), HasSubstr("checkpoints"));
  EXPECT_TRUE(saver.wait().empty());

  std::filesystem::remove(folder);
  saver.save(state.state(), {.step = 3});
  ASSERT_TRUE(saver.wait().back().status.ok());
  EXPECT_TRUE(holds(*load_checkpoint(folder), state));
}

TEST(Saver, ReportsTheStepOfAFailureAndSavesTheNextAllTheSame) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(1);
  Saver saver({.folder = temporary.path()});
  saver.save(state.state(), {.step = -1});  // Refused by the writer,
  saver.wait_copied();
  const auto failed = saver.poll();  // and known as soon as the training may go on.
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].step, -1);
  EXPECT_EQ(failed[0].status.code(), Code::kInvalidArgument);
  saver.save(state.state(), {.step = -2});
  saver.save(state.state(), {.step = 7});
  const auto ended = saver.wait();
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0].step, -2);
  EXPECT_FALSE(ended[0].status.ok());
  EXPECT_EQ(ended[1].step, 7);
  EXPECT_TRUE(ended[1].status.ok());
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
  saver.save(state.state(), {.step = 1});
  ASSERT_TRUE(saver.wait().back().status.ok());
  const auto events = recorder.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(recorder.name(events[0].name), "checkpoint copy");
  EXPECT_EQ(recorder.name(events[1].name), "checkpoint write");
  EXPECT_EQ(events[1].lane, trace::Lane::kCheckpoint);
  EXPECT_EQ(events[1].bytes, state.state().num_bytes());
}

}  // namespace
}  // namespace hanji::checkpoint
