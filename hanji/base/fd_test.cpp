#include "hanji/base/fd.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

namespace hanji::base {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

Fd open_null() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(Fd, ClosesAtTheEndOfItsLife) {
  int number = -1;
  {
    const Fd fd = open_null();
    number = fd.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(Fd, MovingLeavesOneOwner) {
  Fd first = open_null();
  const int number = first.get();
  Fd second = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT: what a move leaves is the question
  EXPECT_EQ(second.get(), number);
  Fd third = open_null();
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_TRUE(is_open(number));
}

TEST(Fd, ReleaseGivesTheDescriptorAway) {
  Fd fd = open_null();
  const int number = fd.release();
  fd.reset();
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(Fd, DuplicateIsAnotherNumberClosedOnExec) {
  const Fd fd = open_null();
  const auto copy = fd.duplicate();
  ASSERT_TRUE(copy.ok());
  EXPECT_NE((*copy).get(), fd.get());
  EXPECT_NE(::fcntl((*copy).get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_FALSE(Fd().duplicate().ok());
}

TEST(Fd, SetInheritDecidesWhatExecKeeps) {
  const Fd fd = open_null();
  EXPECT_TRUE(fd.set_inherit(Inherit::kYes).ok());
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_TRUE(fd.set_inherit(Inherit::kNo).ok());
  EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_FALSE(Fd().set_inherit(Inherit::kYes).ok());
}

}  // namespace
}  // namespace hanji::base
