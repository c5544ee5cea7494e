#include "hanji/base/scratch_file.h"

#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "hanji/base/file.h"
#include "hanji/base/scratch_engine.h"

namespace hanji::base {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;
constexpr int64_t kBlock = ScratchFile::kBlock;

ScratchFile::Memory filled(int64_t bytes, int value) {
  auto memory = *scratch_memory(bytes);
  std::fill_n(memory.get(), bytes, static_cast<std::byte>(value));
  return memory;
}

class Scratch : public testing::TestWithParam<ScratchEngine> {
 protected:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "hanji_scratch_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Scratch() override { static_cast<void>(remove_tree(folder_)); }
  Result<ScratchFile> create(int64_t bytes) {
    return ScratchFile::create(folder_, bytes, {.engine = GetParam()});
  }

  fs::path folder_;
};

INSTANTIATE_TEST_SUITE_P(Engines, Scratch,
                         testing::Values(ScratchEngine::kAuto, ScratchEngine::kThread));

TEST_P(Scratch, GivesBackWhatWasWrittenInAnyOrder) {
  ScratchFile file = *create(40 * kBlock);
  std::vector<ScratchFile::Ticket> writes, reads;
  for (int i = 0; i < 10; ++i)
    writes.push_back(*file.write(i * 4 * kBlock, filled(kBlock, i + 1), kBlock));
  for (auto place = writes.rbegin(); place != writes.rend(); ++place) {
    EXPECT_TRUE(file.wait(*place).ok());
  }
  std::vector<ScratchFile::Memory> memories;
  for (int i = 0; i < 10; ++i) {
    memories.push_back(filled(2 * kBlock, 99));
    reads.push_back(*file.read(i * 4 * kBlock, memories.back(), 2 * kBlock));
  }
  for (int i = 9; i >= 0; --i) {
    EXPECT_TRUE(file.wait(reads[static_cast<size_t>(i)]).ok());
    EXPECT_EQ(memories[static_cast<size_t>(i)].get()[kBlock - 1], static_cast<std::byte>(i + 1));
    EXPECT_EQ(memories[static_cast<size_t>(i)].get()[kBlock], std::byte{0}) << "never written";
  }
  EXPECT_THAT(file.description(), HasSubstr("page cache"));
}

TEST_P(Scratch, LeavesNoNameAndNeedsNoFolder) {
  ScratchFile file = *create(kBlock);
  EXPECT_TRUE(list_files(folder_)->empty());
  ASSERT_TRUE(remove_tree(folder_).ok());
  EXPECT_TRUE(file.wait(*file.write(0, filled(kBlock, 7), kBlock)).ok());
  EXPECT_EQ((*file.map(0, kBlock)).get()[5], std::byte{7});
}

TEST_P(Scratch, WhatIsChangedThroughAMappingIsRead) {
  ScratchFile file = *create(2 * kBlock);
  (*file.map(kBlock, 10)).get()[9] = std::byte{42};
  const auto memory = filled(kBlock, 0);
  ASSERT_TRUE(file.wait(*file.read(kBlock, memory, kBlock)).ok());
  EXPECT_EQ(memory.get()[9], std::byte{42});
}

TEST_P(Scratch, GrowsAndKeepsWhatItHas) {
  ScratchFile file = *create(kBlock);
  ASSERT_TRUE(file.wait(*file.write(0, filled(kBlock, 3), kBlock)).ok());
  ASSERT_TRUE(file.grow(5 * kBlock + 1).ok());
  EXPECT_EQ(file.num_bytes(), 6 * kBlock);
  EXPECT_EQ((*file.map(0, kBlock)).get()[0], std::byte{3});
}

TEST_P(Scratch, ACutFileIsToldSo) {
  ScratchFile file = *create(8 * kBlock);
  ASSERT_EQ(::ftruncate(file.descriptor(), 3 * kBlock), 0);
  const Status status = file.wait(*file.read(2 * kBlock, filled(4 * kBlock, 0), 4 * kBlock));
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(),
              HasSubstr("read of 16384 bytes at 8192: only 4096 bytes are there"));
  EXPECT_EQ(file.map(0, 8 * kBlock).status().code(), Code::kCorrupt);
}

TEST_P(Scratch, AFullDiskIsToldWhenTheFileIsMade) {
  const Status full = create(*free_bytes(folder_) + (int64_t{1} << 40)).status();
  EXPECT_EQ(full.code(), Code::kOutOfMemory);
  EXPECT_THAT(full.message(), HasSubstr(folder_.string()));
  EXPECT_THAT(full.message(), HasSubstr("are free: No space left on device; make room there"));
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{10 * kBlock, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Status limited = create(11 * kBlock).status();
  ::setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(limited.code(), Code::kOutOfMemory);
  EXPECT_THAT(limited.message(), HasSubstr("ulimit -f"));
}

TEST_P(Scratch, AWriteThatFailsLaterIsToldByItsWait) {
  ScratchFile file = *create(8 * kBlock);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{4 * kBlock, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Status status = file.wait(*file.write(4 * kBlock, filled(kBlock, 1), kBlock));
  ::setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("write of 4096 bytes at 16384"));
}

TEST_P(Scratch, AFolderThatCannotBeWrittenIsNamed) {
  for (const char* folder : {"/proc", "/no/such/folder"}) {
    const Status status = ScratchFile::create(folder, kBlock, {.engine = GetParam()}).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(folder));
  }
}

TEST_P(Scratch, BadCallsAreRefused) {
  ScratchFile file = *create(4 * kBlock);
  const auto memory = filled(2 * kBlock, 0);
  EXPECT_EQ(file.read(1, memory, kBlock).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(file.read(3 * kBlock, memory, 2 * kBlock).status().code(), Code::kInvalidArgument);
  const ScratchFile::Memory askew(memory, memory.get() + 8);
  EXPECT_EQ(file.write(0, askew, kBlock).status().code(), Code::kInvalidArgument);
  const auto ticket = *file.write(0, memory, kBlock);
  EXPECT_TRUE(file.wait(ticket).ok());
  EXPECT_EQ(file.wait(ticket).code(), Code::kInvalidArgument);
}

/// The kernel refuses this thread io_uring, as it does in many containers.
bool refuse_rings() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the number of the call
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{4, code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(ScratchEngines, WithoutRingsAThreadTakesOverAndTheLogSaysSo) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd out(ends[0]), in(ends[1]);
  std::thread([&] {
    if (!refuse_rings()) GTEST_SKIP() << "no seccomp here";
    const Log log(in.get(), "");
    ScratchFile file = *ScratchFile::create(fs::temp_directory_path(), kBlock, {.log = &log});
    EXPECT_THAT(file.description(), HasSubstr("a thread"));
    EXPECT_TRUE(file.wait(*file.write(0, filled(kBlock, 7), kBlock)).ok());
    char line[512] = {};
    EXPECT_GT(::read(out.get(), line, sizeof(line) - 1), 0);
    EXPECT_THAT(line,
                HasSubstr("io_uring_setup: Operation not permitted; a thread reads and writes"));
    const Status refused =
        ScratchFile::create(fs::temp_directory_path(), kBlock, {.engine = ScratchEngine::kRing})
            .status();
    EXPECT_EQ(refused.code(), Code::kUnsupported);
  }).join();
}

/// A disk that hangs until it is let go.
std::atomic<bool>& hangs() {
  static std::atomic<bool> value{true};
  return value;
}

int64_t hang(int /*fd*/, const Transfer& rest) {
  while (hangs()) ::usleep(1000);
  return rest.bytes;
}

TEST(ScratchEngines, AHangingDiskPassesTheDeadline) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // an empty pipe: io_uring waits for it
  const Fd out(ends[0]), in(ends[1]);
  std::vector<std::unique_ptr<TransferEngine>> engines;
  engines.push_back(*make_thread_engine(out.get(), &hang));
  if (auto ring = make_ring_engine(out.get()); ring.ok()) engines.push_back(*std::move(ring));
  for (const auto& engine : engines) {
    ASSERT_TRUE(engine->start(1, {false, 0, filled(kBlock, 0), kBlock}).ok());
    const auto ended = engine->next(Deadline::after(std::chrono::milliseconds(20)));
    ASSERT_TRUE(ended.ok());
    EXPECT_FALSE(ended->has_value());
  }
  hangs() = false;
  const auto bytes = filled(kBlock, 1);
  ASSERT_EQ(::write(in.get(), bytes.get(), kBlock), kBlock);
  for (const auto& engine : engines) {
    const auto ended = engine->next(Deadline::after(std::chrono::seconds(30)));
    ASSERT_TRUE(ended.ok() && ended->has_value());
    EXPECT_EQ((*ended)->moved, kBlock);
  }
}

}  // namespace
}  // namespace hanji::base
