#include "hanji/shm/numa.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "hanji/base/file.h"
#include "hanji/shm/segment.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::shm {
namespace {

using testing::ElementsAre;

const std::vector<BankCpus> kTwoBanks = {{0, {0, 1}}, {1, {2, 3}}};

TEST(PlacePages, HeapGoesToItsOwnerAndStagingToItsReaders) {
  const PagePlacement pair = place_pages(std::vector{0, 1});
  EXPECT_THAT(pair.heap, ElementsAre(0, 1));
  EXPECT_THAT(pair.staging, ElementsAre(1, 0));
  const PagePlacement four = place_pages(std::vector{0, 1, 1, 1});
  EXPECT_THAT(four.heap, ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(four.staging, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(place_pages(std::vector{0, 0, 1, 1}).staging, ElementsAre(1, 1, 0, 0));
}

TEST(PlacePages, LeavesOneBankAndUnknownOnesAlone) {
  for (const auto& banks : {std::vector{0, 0}, std::vector{1}, std::vector{0, -1}}) {
    const PagePlacement placement = place_pages(banks);
    EXPECT_THAT(placement.heap, testing::Each(-1));
    EXPECT_THAT(placement.staging, testing::Each(-1));
  }
}

TEST(BankOf, IsThatOfAllCpusOrNone) {
  EXPECT_EQ(bank_of(kTwoBanks, std::vector{2, 3}), 1);
  EXPECT_EQ(bank_of(kTwoBanks, std::vector{1, 2}), -1);
  EXPECT_EQ(bank_of(kTwoBanks, std::vector{9}), -1);
  EXPECT_EQ(bank_of(kTwoBanks, std::vector<int>{}), -1);
}

TEST(ReadBanks, ReadsWhatTheKernelLists) {
  const test::TemporaryFolder root;
  const auto node = root.path() / "sys/devices/system/node";
  for (const auto& [name, text] :
       {std::pair{"online", "0,2\n"}, {"node0/cpulist", "0-1\n"}, {"node2/cpulist", "2,4-5\n"}}) {
    std::filesystem::create_directories((node / name).parent_path());
    ASSERT_TRUE(base::write_file_atomic(node / name, text).ok());
  }
  EXPECT_THAT(read_banks(root.path()), ElementsAre(BankCpus{0, {0, 1}}, BankCpus{2, {2, 4, 5}}));
  EXPECT_THAT(read_banks(root.path() / "nothing"), ElementsAre(BankCpus{}));
}

TEST(PreferBank, IsTakenOrRefusedAndMemoryWorksEitherWay) {
  const auto segment = Segment::create({.ranks = 2, .trace_events = 64}).or_throw();
  EXPECT_FALSE(prefer_bank(*segment, segment->heap_offset(0), 4096, -1));
  prefer_bank(*segment, segment->heap_offset(0), 1 << 20, 0);
  ASSERT_TRUE(segment->grow(segment->heap_offset(0), 1 << 20).ok());
  segment->data()[segment->heap_offset(0)] = std::byte{1};
  const std::vector<int> members = {0, 1};
  place_staging(*segment, 0, members, 0);  // of whatever machine this is
  EXPECT_NE(describe_placement(kTwoBanks), describe_placement({}));
}

}  // namespace
}  // namespace hanji::shm
