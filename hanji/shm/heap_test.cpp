#include "hanji/shm/heap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "hanji/test/run_group.h"

namespace hanji::shm {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class HeapTest : public testing::Test {
 protected:
  std::shared_ptr<Segment> segment_ = test::make_segment(2);
  Heap heap_{segment_, 1};

  HeapBlock allocate(size_t bytes, Zero zero = Zero::kNo) {
    return heap_.allocate(bytes, "test", zero).or_throw();
  }
};

TEST_F(HeapTest, BlocksAreAlignedDistinctAndInTheOwnArena) {
  std::byte* end = nullptr;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{65}, 3 * kMiB}) {
    const HeapBlock block = allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data) % 64, 0u);
    EXPECT_GE(block.data, end);
    EXPECT_EQ(block.bytes, bytes);
    EXPECT_EQ(heap_.at(block.offset), block.data);
    EXPECT_GE(static_cast<size_t>(block.offset), segment_->heap_offset(1));
    std::memset(block.data, 7, bytes);
    end = block.data + bytes;
  }
}

TEST_F(HeapTest, KnowsItsAddresses) {
  const HeapBlock block = allocate(100);
  const int outside = 0;
  EXPECT_TRUE(heap_.contains(block.data + 99));
  EXPECT_EQ(heap_.offset_of(block.data + 99), block.offset + 99);
  EXPECT_FALSE(heap_.contains(&outside));
  EXPECT_FALSE(heap_.contains(segment_->data()));  // flags are no heap
  EXPECT_TRUE(Heap(segment_, 0).contains(block.data));
}

TEST_F(HeapTest, NeighboursThatAreFreeBecomeOneBlockAgain) {
  const HeapBlock a = allocate(kMiB);
  const HeapBlock b = allocate(kMiB);
  const HeapBlock c = allocate(kMiB);
  allocate(64);
  EXPECT_TRUE(heap_.free(a.offset).ok());
  EXPECT_TRUE(heap_.free(c.offset).ok());
  EXPECT_TRUE(heap_.free(b.offset).ok());
  EXPECT_EQ(allocate(3 * kMiB).offset, a.offset);
}

TEST_F(HeapTest, ZeroedBlocksAreZeroEvenWhereOthersWere) {
  const HeapBlock used = allocate(kMiB);
  std::memset(used.data, 1, kMiB);
  EXPECT_TRUE(heap_.free(used.offset).ok());
  const HeapBlock again = allocate(kMiB, Zero::kYes);
  EXPECT_EQ(again.offset, used.offset);
  EXPECT_EQ(again.data[0], std::byte{0});
  EXPECT_EQ(std::memcmp(again.data, again.data + 1, kMiB - 1), 0);
  const HeapBlock fresh = allocate(kMiB, Zero::kYes);
  EXPECT_EQ(std::memcmp(again.data, fresh.data, kMiB), 0);
}

TEST_F(HeapTest, CountsBytesByCategoryAndTheMostThereEverWere) {
  const HeapBlock gradients = heap_.allocate(1000, "gradients").or_throw();
  heap_.allocate(64, "parameters").or_throw();
  EXPECT_THAT(heap_.usage(), testing::ElementsAre(testing::Pair("gradients", 1024u),
                                                  testing::Pair("parameters", 64u)));
  EXPECT_TRUE(heap_.free(gradients.offset).ok());
  EXPECT_FALSE(heap_.usage().contains("gradients"));
  EXPECT_EQ(heap_.used_bytes(1), 64u);
  heap_.allocate(500, "gradients").or_throw();
  EXPECT_EQ(heap_.usage()["gradients"], 512u);
  EXPECT_EQ(heap_.peak_usage()["gradients"], 1024u);
  EXPECT_EQ(Heap(segment_, 0).peak_bytes(1), 1088u);  // told by any rank
  EXPECT_EQ(heap_.used_bytes(0), 0u);
}

TEST_F(HeapTest, RefusesWhatDoesNotFitAndWhatIsNotThere) {
  const Status too_large = heap_.allocate(300 * kMiB, "weights").status();
  EXPECT_EQ(too_large.code(), Code::kOutOfMemory);
  EXPECT_THAT(too_large.message(),
              testing::AllOf(testing::HasSubstr("rank 1"), testing::HasSubstr("weights")));
  allocate(200 * kMiB);
  EXPECT_EQ(heap_.allocate(100 * kMiB, "more").status().code(), Code::kOutOfMemory);
  const HeapBlock block = allocate(64);
  EXPECT_EQ(heap_.free(block.offset + 64).code(), Code::kInvalidArgument);
  EXPECT_TRUE(heap_.free(block.offset).ok());
  EXPECT_EQ(heap_.free(block.offset).code(), Code::kInvalidArgument);
}

TEST_F(HeapTest, TheSameBlockOfTwoRanksLiesInDifferentPlacesOfACache) {
  Heap other(segment_, 0);
  const auto distance =
      static_cast<size_t>(allocate(kMiB).offset - other.allocate(kMiB, "test").or_throw().offset);
  // AMD's way predictor hashes bits 12 to 27 of an address.
  EXPECT_NE(distance >> 12 & 0xffff, 0u);
}

TEST_F(HeapTest, ThreadsMayAllocateAtOnce) {
  test::run_threads(4, [&](int thread) {
    for (int i = 0; i < 100; ++i) {
      const HeapBlock block = allocate(4096);
      std::memset(block.data, thread, 4096);
      EXPECT_EQ(std::memcmp(block.data, block.data + 1, 4095), 0);
      EXPECT_TRUE(heap_.free(block.offset).ok());
    }
  });
  EXPECT_EQ(heap_.used_bytes(1), 0u);
}

}  // namespace
}  // namespace hanji::shm
