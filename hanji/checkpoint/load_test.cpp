#include "hanji/checkpoint/load.h"

#include <gmock/gmock.h>

#include "hanji/base/file.h"
#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/internal/test_state.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;
using internal::read_bytes;
using internal::TestState;
using internal::write_bytes;
using testing::HasSubstr;

// In place: cutting a file and writing it anew waits for the disk on some file systems.
void flip_bit(const fs::path& path, int64_t byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(byte);
  const char flipped = static_cast<char>(file.peek() ^ 1 << byte % 8);
  file.seekp(byte);
  file.put(flipped);
}

// Two good checkpoints; the tests hurt the second and must get the first.
class LoadCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& [step, state] : {std::pair<int64_t, TestState*>{1, &first_}, {2, &second_}}) {
      ASSERT_TRUE(save_checkpoint({.folder = folder()}, state->state(), {.step = step}).ok());
    }
  }
  fs::path folder() const { return temporary_.path() / "checkpoints"; }
  fs::path second() const { return folder() / "step_00000002"; }

  void expect_first(std::string_view reason) const {
    const auto loaded = load_checkpoint(folder());
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_TRUE(holds(*loaded, first_));
    ASSERT_EQ(loaded->refused.size(), 1u);
    EXPECT_THAT(loaded->refused[0].message(), HasSubstr(std::string(reason)));
    EXPECT_EQ(load_checkpoint(second()).status().message(), loaded->refused[0].message());
  }

  test::TemporaryFolder temporary_{internal::folder_in_memory()};
  TestState first_{1};
  TestState second_{2};
};

TEST_F(LoadCheckpoint, TakesTheLatestFromAnyOfItsFolders) {
  for (const fs::path& path : {temporary_.path(), folder(), second()}) {
    const auto loaded = load_checkpoint(path);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_TRUE(holds(*loaded, second_));
    EXPECT_TRUE(loaded->refused.empty());
  }
}

TEST_F(LoadCheckpoint, FollowsLatestAndNotTheHighestNumber) {
  ASSERT_TRUE(set_latest(folder(), 1).ok());
  EXPECT_TRUE(holds(*load_checkpoint(folder()), first_));
}

TEST_F(LoadCheckpoint, WorksWithoutLatest) {
  for (const char* content :
       {"", "step_2", "../../etc", "step_00000002x", "step_99999999999999999999"}) {
    write_bytes(folder() / "latest", content);
    EXPECT_TRUE(holds(*load_checkpoint(folder()), second_)) << content;
  }
  fs::remove(folder() / "latest");
  EXPECT_TRUE(holds(*load_checkpoint(folder()), second_));
}

TEST_F(LoadCheckpoint, SaysThatTheLatestIsMissing) {
  fs::remove_all(second());
  const auto loaded = load_checkpoint(folder());
  ASSERT_TRUE(loaded.ok());
  EXPECT_TRUE(holds(*loaded, first_));
  ASSERT_EQ(loaded->refused.size(), 1u);
  EXPECT_THAT(loaded->refused[0].message(), HasSubstr("step_00000002 is missing"));
}

TEST_F(LoadCheckpoint, SeesEveryFlippedBit) {
  for (const auto name : {kManifestFile, kModelFile, kOptimizerFile}) {
    const fs::path path = second() / name;
    const auto size = static_cast<int64_t>(fs::file_size(path));
    for (int64_t byte = 0; byte<size; byte += size> 3000 ? 3 : 1) {
      flip_bit(path, byte);
      const auto loaded = open_checkpoint(second());
      ASSERT_FALSE(loaded.ok()) << name << " byte " << byte;
      ASSERT_THAT(loaded.status().message(), HasSubstr(name)) << byte;
      flip_bit(path, byte);
    }
  }
  EXPECT_TRUE(open_checkpoint(second()).ok());
}

TEST_F(LoadCheckpoint, SeesEveryTruncation) {
  for (const auto name : {kManifestFile, kModelFile, kOptimizerFile}) {
    const fs::path path = second() / name;
    const std::string good = read_bytes(path);
    // Ever shorter; every size near the ends, where the lengths and the seal lie.
    for (size_t size = good.size(); size > 0;) {
      size -= size <= 64 || size + 64 > good.size() ? 1 : 13;
      fs::resize_file(path, size);
      ASSERT_FALSE(open_checkpoint(second()).ok()) << name << " cut to " << size;
    }
    write_bytes(path, good + "x");
    EXPECT_FALSE(open_checkpoint(second()).ok()) << name << " lengthened";
    write_bytes(path, good);
  }
  EXPECT_TRUE(open_checkpoint(second()).ok());
}

TEST_F(LoadCheckpoint, NamesTheTensorWhoseBytesChanged) {
  std::string bytes = read_bytes(second() / kModelFile);
  const auto file = SafetensorsFile::open(second() / kModelFile);
  const auto at = file->find("head.weight")->bytes.data() - file->header().data();
  bytes[static_cast<size_t>(at) + 100] ^= 4;
  write_bytes(second() / kModelFile, bytes);
  expect_first("tensor 'head.weight' has checksum");
}

TEST_F(LoadCheckpoint, SeesSwappedTensors) {
  std::string bytes = read_bytes(second() / kOptimizerFile);
  const size_t half = 4 * 128 * sizeof(float);
  std::swap_ranges(bytes.end() - 2 * half, bytes.end() - half, bytes.end() - half);
  write_bytes(second() / kOptimizerFile, bytes);
  expect_first("tensor 'first_moment' has checksum");
}

TEST_F(LoadCheckpoint, SeesTheFileOfAnotherCheckpoint) {
  fs::copy_file(folder() / "step_00000001" / kModelFile, second() / kModelFile,
                fs::copy_options::overwrite_existing);
  expect_first("its bytes changed");
}

TEST_F(LoadCheckpoint, NamesAMissingFile) {
  for (const auto name : {kManifestFile, kModelFile, kOptimizerFile}) {
    const std::string good = read_bytes(second() / name);
    fs::remove(second() / name);
    const auto loaded = load_checkpoint(folder());
    ASSERT_TRUE(loaded.ok());
    EXPECT_TRUE(holds(*loaded, first_));
    EXPECT_THAT(loaded->refused.at(0).message(), HasSubstr(std::string(name) + " is missing"));
    write_bytes(second() / name, good);
  }
}

TEST_F(LoadCheckpoint, FollowsNoLinks) {
  const fs::path elsewhere = temporary_.path() / "elsewhere";
  fs::rename(second() / kModelFile, elsewhere);
  fs::create_symlink(elsewhere, second() / kModelFile);
  expect_first("links are not followed");
  fs::create_directory_symlink(folder() / "step_00000001", folder() / "step_00000009");
  EXPECT_EQ(list_checkpoints(folder())->back().step, 2);
}

TEST_F(LoadCheckpoint, ListsEveryReasonWhenNoneIsGood) {
  fs::remove(folder() / "step_00000001" / kManifestFile);
  fs::resize_file(second() / kOptimizerFile, 100);
  const Status status = load_checkpoint(folder()).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("none of 2 checkpoints"));
  EXPECT_THAT(status.message(), HasSubstr("step_00000001/manifest.json is missing"));
  EXPECT_THAT(status.message(), HasSubstr("step_00000002/optimizer.safetensors"));
}

TEST_F(LoadCheckpoint, SaysThatNoneIsThere) {
  const fs::path empty = temporary_.path() / "empty";
  EXPECT_EQ(load_checkpoint(empty).status().code(), Code::kNotFound);
  fs::create_directory(empty);
  EXPECT_THAT(load_checkpoint(empty).status().message(), HasSubstr("no checkpoint lies here"));
}

}  // namespace
}  // namespace hanji::checkpoint
