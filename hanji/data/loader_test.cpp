#include "hanji/data/loader.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "hanji/data/order.h"

namespace hanji::data {
namespace {

using layout::Range;
using testing::ElementsAre;
using testing::Pair;

std::vector<int64_t> samples_of(const Loader& loader, int64_t step) {
  std::vector<int64_t> samples;
  for (const Range run : loader.micro_batches()) {
    for (int64_t j = run.begin; j < run.end; ++j) samples.push_back(loader.sample(step, j));
  }
  return samples;
}

Loader make(Range share, int64_t micro_batch, int64_t num_samples = 25) {
  return Loader::create({.seed = 3,
                         .num_samples = num_samples,
                         .global_batch = 10,
                         .share = share,
                         .micro_batch = micro_batch})
      .or_throw();
}

TEST(Loader, CutsItsShareIntoMicroBatches) {
  EXPECT_THAT(make({2, 9}, 3).micro_batches(), ElementsAre(Range{2, 5}, Range{5, 8}, Range{8, 9}));
  EXPECT_TRUE(make({4, 4}, 3).micro_batches().empty());
}

TEST(Loader, SameSamplesUnderAnySplitAndMicroBatch) {
  for (int64_t step = 0; step < 6; ++step) {
    const auto whole = samples_of(make({0, 10}, 10), step);
    std::vector<int64_t> joined;
    for (const Range share : {Range{0, 1}, Range{1, 7}, Range{7, 7}, Range{7, 10}}) {
      for (const int64_t sample : samples_of(make(share, 2), step)) joined.push_back(sample);
    }
    EXPECT_EQ(joined, whole) << "step " << step;
  }
}

TEST(Loader, RunsAcrossEpochsWithoutAGap) {
  const Loader loader = make({0, 10}, 10);
  std::vector<int64_t> run;
  for (int64_t step = 0; step < 5; ++step) {
    for (const int64_t sample : samples_of(loader, step)) run.push_back(sample);
  }
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    const Permutation order(3, static_cast<uint64_t>(epoch), 25);
    for (int64_t i = 0; i < 25; ++i) {
      EXPECT_EQ(run[static_cast<size_t>(25 * epoch + i)], order(i)) << epoch << " " << i;
    }
  }
  EXPECT_EQ(loader.epoch(2), 0);
  EXPECT_EQ(loader.epoch(3), 1);
}

TEST(Loader, ManyPositionsAtOnceAreThoseOneByOne) {
  using plan::EpochEnd;
  for (const EpochEnd end : {EpochEnd::kContinue, EpochEnd::kPad, EpochEnd::kDrop}) {
    for (const auto order : {plan::SampleOrder::kRandom, plan::SampleOrder::kTorch}) {
      LoaderOptions options = {.seed = 3, .num_samples = 25, .global_batch = 60, .share = {0, 60}};
      if (end == EpochEnd::kDrop) options.num_samples = 61;
      options.micro_batch = 60;
      options.order = order;
      options.epoch_end = end;
      const Loader loader = Loader::create(options).or_throw();
      for (int64_t step = 0; step < 4; ++step) {
        const auto together = loader.at(step, {3, 58});
        ASSERT_EQ(together.size(), 55u);
        for (int64_t position = 3; position < 58; ++position) {
          const EpochSample one = loader.at(step, position);
          const EpochSample& found = together[static_cast<size_t>(position - 3)];
          EXPECT_EQ(found.epoch, one.epoch) << step << " " << position;
          EXPECT_EQ(found.index, one.index) << step << " " << position;
        }
      }
    }
  }
}

TEST(Loader, SequentialEpochsCountUpAndSayTheirNumber) {
  const Loader loader = Loader::create({.num_samples = 4,
                                        .global_batch = 3,
                                        .share = {0, 3},
                                        .micro_batch = 3,
                                        .order = plan::SampleOrder::kSequential})
                            .or_throw();
  std::vector<std::pair<int64_t, int64_t>> seen;
  for (int64_t step = 0; step < 2; ++step) {
    for (int64_t j = 0; j < 3; ++j) {
      const EpochSample one = loader.at(step, j);
      seen.emplace_back(one.epoch, one.index);
    }
  }
  EXPECT_THAT(seen,
              ElementsAre(Pair(0, 0), Pair(0, 1), Pair(0, 2), Pair(0, 3), Pair(1, 0), Pair(1, 1)));
}

TEST(Loader, ServesFewerSamplesThanAGlobalBatch) {
  const auto samples = samples_of(make({0, 10}, 10, 3), 0);
  EXPECT_EQ(std::count(samples.begin(), samples.begin() + 9, 1), 3);
}

std::vector<int64_t> epochs_of(plan::EpochEnd end, int64_t num_samples) {
  const Loader loader = Loader::create({.num_samples = num_samples,
                                        .global_batch = 4,
                                        .share = {0, 4},
                                        .micro_batch = 4,
                                        .order = plan::SampleOrder::kSequential,
                                        .epoch_end = end})
                            .or_throw();
  std::vector<int64_t> seen;
  for (int64_t step = 0; step < 4; ++step) {
    for (int64_t j = 0; j < 4; ++j) {
      const EpochSample one = loader.at(step, j);
      seen.push_back(100 * one.epoch + one.index);
    }
    EXPECT_EQ(loader.epoch(step), loader.at(step, 0).epoch);
  }
  return seen;
}

TEST(Loader, AnEpochEndsWithAFullBatchIfItIsPaddedOrDropped) {
  EXPECT_THAT(epochs_of(plan::EpochEnd::kPad, 6),
              ElementsAre(0, 1, 2, 3, 4, 5, 0, 1, 100, 101, 102, 103, 104, 105, 100, 101));
  EXPECT_THAT(epochs_of(plan::EpochEnd::kDrop, 6),
              ElementsAre(0, 1, 2, 3, 100, 101, 102, 103, 200, 201, 202, 203, 300, 301, 302, 303));
  EXPECT_THAT(epochs_of(plan::EpochEnd::kPad, 3),
              ElementsAre(0, 1, 2, 0, 100, 101, 102, 100, 200, 201, 202, 200, 300, 301, 302, 300));
  EXPECT_EQ(epochs_of(plan::EpochEnd::kPad, 8), epochs_of(plan::EpochEnd::kDrop, 8));
  EXPECT_EQ(epochs_of(plan::EpochEnd::kPad, 8), epochs_of(plan::EpochEnd::kContinue, 8));
}

TEST(Loader, RefusesStepsAndPositionsBelowZero) {
  for (const plan::SampleOrder order : {plan::SampleOrder::kRandom, plan::SampleOrder::kFfcv}) {
    const Loader loader = Loader::create({.num_samples = 5,
                                          .global_batch = 4,
                                          .share = {0, 4},
                                          .micro_batch = 4,
                                          .order = order})
                              .or_throw();
    for (const auto& [step, position] :
         {std::pair<int64_t, int64_t>(-1, 0), {-3, 3}, {0, -1}, {INT64_MAX / 4, 0}}) {
      EXPECT_THROW(loader.at(step, position), Error) << step << " " << position;
    }
    EXPECT_THROW(loader.epoch(-1), Error);
    EXPECT_NO_THROW(loader.at(int64_t{1} << 40, 3));
  }
}

TEST(Loader, RefusesSharesAndCountsOutOfRange) {
  const auto code = [](LoaderOptions options) { return Loader::create(options).status().code(); };
  LoaderOptions good = {.num_samples = 5, .global_batch = 4, .share = {0, 4}, .micro_batch = 2};
  EXPECT_EQ(code(good), Code::kOk);
  for (const Range share : {Range{-1, 2}, Range{3, 2}, Range{0, 5}}) {
    LoaderOptions options = good;
    options.share = share;
    EXPECT_EQ(code(options), Code::kInvalidArgument);
  }
  for (int64_t LoaderOptions::*field :
       {&LoaderOptions::num_samples, &LoaderOptions::global_batch, &LoaderOptions::micro_batch}) {
    LoaderOptions options = good;
    options.*field = 0;
    EXPECT_EQ(code(options), Code::kInvalidArgument);
  }
  LoaderOptions dropped = good;
  dropped.num_samples = 3;
  dropped.epoch_end = plan::EpochEnd::kDrop;
  EXPECT_EQ(code(dropped), Code::kInvalidArgument);
}

}  // namespace
}  // namespace hanji::data
