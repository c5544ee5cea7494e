#include "hanji/base/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

namespace hanji::base {
namespace {

using testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

Fd copy_of(const SharedMemory& memory) { return Fd(::fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0)); }

TEST(SharedMemory, IsSparseUntilGrown) {
  const auto memory = SharedMemory::create("test", size_t{1} << 40);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  EXPECT_EQ((*memory).size(), size_t{1} << 40);
  EXPECT_EQ((*memory).backed_bytes(), 0u);
  ASSERT_TRUE((*memory).grow(size_t{1} << 39, kMiB).ok());
  EXPECT_EQ((*memory).backed_bytes(), kMiB);
  (*memory).data()[size_t{1} << 39] = std::byte{7};
}

TEST(SharedMemory, AttachSeesTheSameBytes) {
  const auto memory = SharedMemory::create("test", kMiB);
  ASSERT_TRUE((*memory).grow(0, 4096).ok());
  const auto other = SharedMemory::attach(copy_of(*memory));
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_EQ((*other).size(), kMiB);
  EXPECT_NE((*other).data(), (*memory).data());
  (*memory).data()[100] = std::byte{42};
  EXPECT_EQ((*other).data()[100], std::byte{42});
}

TEST(SharedMemory, AChildsBytesSurviveItsDeath) {
  const auto memory = SharedMemory::create("test", kMiB);
  ASSERT_TRUE((*memory).grow(0, 4096).ok());
  std::byte* data = (*memory).data();
  const pid_t child = ::fork();
  if (child == 0) {
    data[5] = std::byte{9};
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(data[5], std::byte{9});
}

TEST(SharedMemory, NobodyCanShrinkOrUnsealIt) {
  const auto memory = SharedMemory::create("test", kMiB);
  EXPECT_EQ(::ftruncate((*memory).fd(), 4096), -1);
  EXPECT_EQ(::fcntl((*memory).fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(::fcntl((*memory).fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_SEAL);
}

TEST(SharedMemory, AttachRefusesWhatItsOwnerCouldCut) {
  Fd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  EXPECT_EQ(SharedMemory::attach(std::move(unsealed)).status().code(), Code::kCorrupt);
  EXPECT_EQ(SharedMemory::attach(Fd(::open("/dev/null", O_RDWR))).status().code(), Code::kCorrupt);
  EXPECT_EQ(SharedMemory::attach(Fd()).status().code(), Code::kCorrupt);
  Fd empty(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(SharedMemory::attach(std::move(empty)).status().code(), Code::kCorrupt);
}

TEST(SharedMemory, GrowBeyondWhatIsLeftIsRefusedBeforeTheKernelKills) {
  const auto memory = SharedMemory::create("test", size_t{1} << 44);
  const Status status = (*memory).grow(0, size_t{1} << 44);
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_THAT(status.message(), HasSubstr("17.6 TB asked"));
  EXPECT_EQ((*memory).backed_bytes(), 0u);
}

TEST(SharedMemory, RangesOutsideTheReservationAreRefused) {
  const auto memory = SharedMemory::create("test", kMiB);
  EXPECT_EQ((*memory).grow(kMiB, 1).code(), Code::kInvalidArgument);
  EXPECT_EQ((*memory).grow(4096, SIZE_MAX).code(), Code::kInvalidArgument);
  EXPECT_EQ((*memory).release(SIZE_MAX, 2).code(), Code::kInvalidArgument);
  EXPECT_TRUE((*memory).grow(kMiB, 0).ok());
  EXPECT_EQ(SharedMemory::create("test", 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(SharedMemory::create("test", SIZE_MAX).status().code(), Code::kInvalidArgument);
}

TEST(SharedMemory, GrowKeepsContentsAndReleaseGivesZerosBack) {
  const auto memory = SharedMemory::create("test", kMiB);
  ASSERT_TRUE((*memory).grow(0, 8192).ok());
  std::memset((*memory).data(), 1, 8192);
  ASSERT_TRUE((*memory).grow(0, kMiB).ok());
  EXPECT_EQ((*memory).data()[8191], std::byte{1});
  ASSERT_TRUE((*memory).release(4096, kMiB - 4096).ok());
  EXPECT_EQ((*memory).data()[4095], std::byte{1});
  EXPECT_EQ((*memory).data()[4096], std::byte{0});
  EXPECT_LE((*memory).backed_bytes(), 8192u);
}

TEST(SharedMemory, SeveralThreadsMayGrowAtOnce) {
  const auto memory = SharedMemory::create("test", 8 * kMiB);
  std::vector<std::jthread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      EXPECT_TRUE((*memory).grow(thread * kMiB, 2 * kMiB).ok());  // neighbours overlap
      std::memset((*memory).data() + thread * kMiB, static_cast<int>(thread + 1), kMiB);
    });
  }
  threads.clear();
  for (size_t thread = 0; thread < 4; ++thread) {
    EXPECT_EQ((*memory).data()[thread * kMiB + 77], static_cast<std::byte>(thread + 1));
  }
}

TEST(SharedMemory, MovingKeepsOneMapping) {
  auto first = SharedMemory::create("test", kMiB);
  ASSERT_TRUE((*first).grow(0, 4096).ok());
  SharedMemory second = *std::move(first);
  second.data()[0] = std::byte{3};
  auto third = SharedMemory::create("test", kMiB);
  *third = std::move(second);
  EXPECT_EQ((*third).data()[0], std::byte{3});
}

}  // namespace
}  // namespace hanji::base
