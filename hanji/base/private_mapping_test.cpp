#include "hanji/base/private_mapping.h"

#include <gtest/gtest.h>

#include "hanji/base/shared_memory.h"

namespace hanji::base {
namespace {

TEST(PrivateMapping, ShowsSharedBytesAndKeepsItsWritesToItself) {
  const auto memory = SharedMemory::create("test", size_t{1} << 20).or_throw();
  ASSERT_TRUE(memory.grow(0, 3 * 4096).ok());
  constexpr size_t kFrom = 4096 + 100;
  memory.data()[kFrom] = std::byte{5};
  {
    const auto one = PrivateMapping::map(memory.fd(), kFrom, 5000).or_throw();
    const auto other = PrivateMapping::map(memory.fd(), kFrom, 5000).or_throw();
    EXPECT_EQ(one.data()[0], std::byte{5});
    memory.data()[kFrom + 4096] = std::byte{6};
    EXPECT_EQ(one.data()[4096], std::byte{6});
    one.data()[0] = std::byte{7};
    one.data()[4999] = std::byte{8};
    EXPECT_EQ(other.data()[0], std::byte{5});
    EXPECT_EQ(memory.data()[kFrom], std::byte{5});
    EXPECT_EQ(memory.data()[kFrom + 4999], std::byte{0});
  }
  EXPECT_EQ(memory.data()[kFrom], std::byte{5});
}

TEST(PrivateMapping, OfNoSharedMemoryIsAnError) {
  EXPECT_FALSE(PrivateMapping::map(-1, 0, 10).ok());
}

}  // namespace
}  // namespace hanji::base
