#include "hanji/data/sampler.h"

#include <gmock/gmock.h>
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/serialize.h>

#include <numeric>
#include <set>
#include <sstream>

#include "hanji/base/status.h"

namespace hanji::data {
namespace {

using Indices = std::vector<size_t>;

struct Ranks {
  int own, all;
  int rank() const { return own; }
  int size() const { return all; }
};

Indices rest_of(Sampler& sampler, size_t batch = 3) {
  Indices all;
  while (auto more = sampler.next(batch)) all.insert(all.end(), more->begin(), more->end());
  return all;
}

std::multiset<size_t> epoch_of(int ranks, size_t samples, Remainder remainder) {
  std::multiset<size_t> all;
  for (int rank = 0; rank < ranks; ++rank) {
    Sampler sampler(Ranks{rank, ranks}, samples, 7, remainder);
    const Indices own = rest_of(sampler);
    EXPECT_EQ(own.size(), sampler.size()) << "every rank takes equally many";
    all.insert(own.begin(), own.end());
  }
  return all;
}

std::stringstream saved(const Sampler& sampler) {
  torch::serialize::OutputArchive archive;
  sampler.save(archive);
  std::stringstream bytes;
  archive.save_to(bytes);
  return bytes;
}

void load(Sampler& sampler, std::stringstream bytes) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes);
  sampler.load(archive);
}

TEST(Sampler, RanksTakeEverySampleOnceWhereTheyDivideThem) {
  const auto all = epoch_of(4, 100, Remainder::kDrop);
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(std::set<size_t>(all.begin(), all.end()).size(), 100u);
  EXPECT_EQ(*all.rbegin(), 99u);
}

TEST(Sampler, PadsByRepeatingOrDropsTheRest) {
  const auto padded = epoch_of(3, 100, Remainder::kPad);
  EXPECT_EQ(padded.size(), 102u);
  EXPECT_EQ(std::set<size_t>(padded.begin(), padded.end()).size(), 100u);
  const auto dropped = epoch_of(3, 100, Remainder::kDrop);
  EXPECT_EQ(dropped.size(), 99u);
  EXPECT_EQ(std::set<size_t>(dropped.begin(), dropped.end()).size(), 99u);
}

TEST(Sampler, PadsMoreRanksThanSamples) {
  EXPECT_EQ(epoch_of(5, 2, Remainder::kPad).size(), 5u);
  EXPECT_THROW(Sampler(Ranks{0, 5}, 2, 7, Remainder::kDrop), Error);
  EXPECT_THROW(Sampler(Ranks{0, 1}, 0, 7), Error);
}

TEST(Sampler, BatchesOfAllRanksAreThoseOfOneProcess) {
  Sampler one(Ranks{0, 1}, 60, 7), first(Ranks{0, 2}, 60, 7), second(Ranks{1, 2}, 60, 7);
  for (int batch = 0; batch < 10; ++batch) {
    Indices both = first.next(3).value();
    const Indices others = second.next(3).value();
    both.insert(both.end(), others.begin(), others.end());
    EXPECT_THAT(both, testing::UnorderedElementsAreArray(one.next(6).value()));
  }
}

TEST(Sampler, OrdersByEpochAndSeed) {
  Sampler sampler(Ranks{0, 2}, 100, 7), other(Ranks{0, 2}, 100, 8);
  const Indices first = rest_of(sampler);
  EXPECT_NE(first, rest_of(other));
  sampler.reset();
  EXPECT_EQ(first, rest_of(sampler));
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.epoch(), 1u);
  EXPECT_NE(first, rest_of(sampler));
}

TEST(Sampler, GoesOnFromASavedPosition) {
  Sampler sampler(Ranks{1, 2}, 100, 7);
  sampler.set_epoch(3);
  sampler.next(12);
  auto bytes = saved(sampler);
  const Indices rest = rest_of(sampler);
  Sampler resumed(Ranks{1, 2}, 100, 7);
  load(resumed, std::move(bytes));
  resumed.reset();  // as a data loader does by begin()
  EXPECT_EQ(rest_of(resumed), rest);
  resumed.reset();
  EXPECT_EQ(rest_of(resumed).size(), 50u);
}

TEST(Sampler, GoesOnWithAnotherNumberOfRanks) {
  Sampler two(Ranks{0, 2}, 96, 7), one(Ranks{0, 1}, 96, 7), three(Ranks{2, 3}, 96, 7);
  two.next(6);
  one.next(12);
  load(three, saved(two));
  Indices expected;
  const Indices rest = rest_of(one);
  for (size_t i = 2; i < rest.size(); i += 3) expected.push_back(rest[i]);
  EXPECT_EQ(rest_of(three), expected);
}

// Written by torch 2.13 in Python: DistributedSampler(range(11), 3, rank, seed=5, drop_last), epoch 2.
TEST(Sampler, InTorchsOrderItIsDistributedSampler) {
  const Indices padded[] = {{3, 2, 4, 7}, {0, 5, 10, 6}, {9, 8, 1, 3}};
  const Indices dropped[] = {{3, 2, 4}, {0, 5, 10}, {9, 8, 1}};
  for (int rank = 0; rank < 3; ++rank) {
    for (const auto& [remainder, expected] :
         {std::pair(Remainder::kPad, &padded[rank]), std::pair(Remainder::kDrop, &dropped[rank])}) {
      Sampler sampler(Ranks{rank, 3}, 11, 5, remainder, plan::SampleOrder::kTorch);
      sampler.set_epoch(2);
      EXPECT_EQ(rest_of(sampler), *expected);
      Sampler other(Ranks{rank, 3}, 11, 5, remainder);
      EXPECT_THROW(load(other, saved(sampler)), Error) << "another order";
    }
  }
}

TEST(Sampler, RefusesAStateThatIsNotItsOwn) {
  Sampler sampler(Ranks{0, 2}, 100, 7), larger(Ranks{0, 2}, 101, 7), other(Ranks{0, 2}, 100, 8),
      uneven(Ranks{0, 3}, 100, 7);
  sampler.next(4);
  EXPECT_THROW(load(larger, saved(sampler)), Error);
  EXPECT_THROW(load(other, saved(sampler)), Error);
  EXPECT_THROW(load(uneven, saved(sampler)), Error);
  torch::serialize::OutputArchive empty;
  std::stringstream bytes;
  empty.save_to(bytes);
  EXPECT_THROW(load(sampler, std::move(bytes)), Error);
}

TEST(Sampler, EpochsCountFromZero) {
  Sampler sampler(Ranks{0, 2}, 20, 7, Remainder::kPad, plan::SampleOrder::kTorch);
  sampler.set_epoch(INT64_MAX);
  EXPECT_EQ(sampler.next(10)->size(), 10u);
  EXPECT_THROW(sampler.set_epoch(static_cast<uint64_t>(-1)), Error);
}

struct Numbers : torch::data::datasets::Dataset<Numbers, size_t> {
  size_t get(size_t index) override { return index; }
  std::optional<size_t> size() const override { return 20; }
};

TEST(Sampler, FeedsADataLoaderThatFollowsTheEpoch) {
  Sampler sampler(Ranks{0, 2}, 20, 7);
  auto loader = torch::data::make_data_loader(Numbers(), sampler, /*options=*/5);
  Indices epochs[2];
  for (uint64_t epoch : {0, 1}) {
    sampler.set_epoch(epoch);
    for (const auto& batch : *loader) {
      epochs[epoch].insert(epochs[epoch].end(), batch.begin(), batch.end());
    }
    EXPECT_EQ(epochs[epoch].size(), 10u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

}  // namespace
}  // namespace hanji::data
