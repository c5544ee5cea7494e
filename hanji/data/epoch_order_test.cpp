#include "hanji/data/internal/epoch_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "hanji/data/internal/numpy_permutation.h"

namespace hanji::data::internal {
namespace {

using plan::SampleOrder;
using testing::ElementsAre;

std::vector<int64_t> epoch_of(const LoaderOptions& options, int64_t epoch) {
  const auto order = make_epoch_order(options).or_throw();
  std::vector<int64_t> samples;
  for (int64_t place = 0; place < options.num_samples; ++place) {
    samples.push_back(order->at(epoch, place));
  }
  return samples;
}

/// A number that any change of an order changes.
int64_t digest(const std::vector<int64_t>& order) {
  int64_t sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    sum = (sum + order[i] * static_cast<int64_t>(i + 1)) % (int64_t{1} << 31);
  }
  return sum;
}

LoaderOptions order_of(SampleOrder order, int64_t num_samples, uint64_t seed) {
  return {.seed = seed, .num_samples = num_samples, .order = order};
}

// Written by numpy 2.4.6: numpy.random.default_rng(seed).permutation(n), and for the digest
// (p * numpy.arange(1, n + 1)).sum() % 2**31.
TEST(EpochOrder, FfcvsIsNumpys) {
  EXPECT_THAT(epoch_of(order_of(SampleOrder::kFfcv, 12, 0), 0),
              ElementsAre(9, 2, 7, 4, 5, 11, 0, 3, 6, 10, 8, 1));
  EXPECT_THAT(epoch_of(order_of(SampleOrder::kFfcv, 12, 1), 2),
              ElementsAre(11, 7, 2, 10, 0, 1, 4, 6, 9, 5, 3, 8))
      << "seed + epoch";
  EXPECT_THAT(numpy_permutation((uint64_t{1} << 40) + 1, 12),
              ElementsAre(4, 7, 5, 11, 1, 9, 8, 0, 10, 6, 2, 3))
      << "a seed of two words";
  EXPECT_EQ(digest(epoch_of(order_of(SampleOrder::kFfcv, 100000, 7), 0)), 284279488);
  EXPECT_THAT(numpy_permutation(9, 1), ElementsAre(0));
}

// Written by torch 2.13 in Python: torch.randperm(n, generator=g) after g.manual_seed(seed).
TEST(EpochOrder, TorchsIsThatOfDistributedSampler) {
  EXPECT_THAT(epoch_of(order_of(SampleOrder::kTorch, 12, 0), 0),
              ElementsAre(8, 0, 5, 9, 7, 4, 2, 10, 3, 1, 11, 6));
  EXPECT_THAT(epoch_of(order_of(SampleOrder::kTorch, 12, 2), 1),
              ElementsAre(10, 9, 1, 6, 4, 11, 3, 7, 2, 0, 8, 5))
      << "seed + epoch";
  EXPECT_EQ(digest(epoch_of(order_of(SampleOrder::kTorch, 100000, 7), 0)), 1506295383);
}

TEST(EpochOrder, ListsAreThoseOfTheirEpochInAnyOrderOfQuestions) {
  const auto options = order_of(SampleOrder::kFfcv, 50, 3);
  const auto order = make_epoch_order(options).or_throw();
  for (const int64_t epoch : {0, 1, 2, 1, 5, 0, 3}) {
    EXPECT_EQ(order->at(epoch, 17), epoch_of(options, epoch)[17]) << epoch;
  }
}

/// `num_pages` pages of different numbers of samples; every third has none that trains.
std::vector<uint32_t> uneven_pages(uint32_t num_pages) {
  std::vector<uint32_t> pages;
  for (uint32_t page = 0; page < num_pages; ++page) {
    if (page % 3 != 1) pages.insert(pages.end(), 5 + page % 7, page);
  }
  return pages;
}

LoaderOptions quasi_options(const std::vector<uint32_t>& pages, int64_t open_pages) {
  LoaderOptions options = order_of(SampleOrder::kQuasi, std::ssize(pages), 11);
  options.pages = std::make_shared<const std::vector<uint32_t>>(pages);
  options.open_pages = open_pages;
  return options;
}

TEST(EpochOrder, QuasiHasEverySampleOnceAndAnotherOrderInEachEpoch) {
  const auto pages = uneven_pages(40);
  for (const int64_t open : {2, 3, 8, 1000}) {
    std::set<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<int64_t> order = epoch_of(quasi_options(pages, open), epoch);
      orders.insert(order);
      std::ranges::sort(order);
      for (int64_t i = 0; i < std::ssize(pages); ++i) ASSERT_EQ(order[i], i);
    }
    EXPECT_EQ(orders.size(), 4U);
  }
}

/// A page is open from its first sample of an epoch to its last.
TEST(EpochOrder, QuasiNeverNeedsMorePagesThanItsBudget) {
  const auto pages = uneven_pages(60);
  for (const int64_t open : {2, 4, 10}) {
    const auto order = epoch_of(quasi_options(pages, open), 1);
    std::vector<int64_t> first(60, -1), last(60, -1);
    for (int64_t place = 0; place < std::ssize(order); ++place) {
      const uint32_t page = pages[order[place]];
      if (first[page] < 0) first[page] = place;
      last[page] = place;
    }
    int64_t most = 0;
    for (int64_t place = 0; place < std::ssize(order); ++place) {
      int64_t now = 0;
      for (size_t page = 0; page < 60; ++page) {
        now += first[page] >= 0 && first[page] <= place && place <= last[page] ? 1 : 0;
      }
      most = std::max(most, now);
    }
    EXPECT_LE(most, open / 2) << "the other half is read ahead";
  }
}

TEST(EpochOrder, QuasiPutsEachSampleAnywhereInTheEpoch) {
  const std::vector<uint32_t> pages = [] {
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < 400; ++i) all.push_back(i / 10);
    return all;
  }();
  const auto order = make_epoch_order(quasi_options(pages, 8)).or_throw();
  constexpr int kEpochs = 200, kParts = 10;
  std::vector<int> counts(kParts, 0);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (int64_t place = 0; place < 400; ++place) {
      if (order->at(epoch, place) == 123) ++counts[static_cast<size_t>(place / 40)];
    }
  }
  for (const int count : counts)
    EXPECT_NEAR(count, 20, 22) << "five deviations of sqrt(200 x 0.09)";
}

TEST(EpochOrder, WeightsAreTheSharesOfDraws) {
  LoaderOptions options = order_of(SampleOrder::kRandom, 5, 4);
  options.weights = std::make_shared<const std::vector<double>>(std::vector<double>{1, 0, 3, 5, 1});
  const auto order = make_epoch_order(options).or_throw();
  constexpr int64_t kDraws = 20000;
  std::vector<int64_t> counts(5, 0);
  for (int64_t place = 0; place < kDraws; ++place) ++counts[order->at(place % 7, place)];
  for (size_t i = 0; i < 5; ++i) {
    const double share = (*options.weights)[i] / 10;
    EXPECT_NEAR(counts[i], kDraws * share, 5 * std::sqrt(kDraws * share * (1 - share))) << i;
  }
  EXPECT_EQ(order->at(3, 8), make_epoch_order(options).or_throw()->at(3, 8));
}

TEST(EpochOrder, RejectsPagesAndWeightsThatDoNotFit) {
  const auto code = [](LoaderOptions options) { return make_epoch_order(options).status().code(); };
  LoaderOptions quasi = order_of(SampleOrder::kQuasi, 10, 1);
  EXPECT_EQ(code(quasi), Code::kUnsupported) << "no pages";
  quasi.pages = std::make_shared<const std::vector<uint32_t>>(9, 0);
  EXPECT_EQ(code(quasi), Code::kInvalidArgument) << "of 9 samples";
  for (const std::vector<double>& weights :
       {std::vector<double>{1, 2}, {0, 0, 0}, {1, -1, 1}, {1, NAN, 1}, {1, INFINITY, 1}}) {
    LoaderOptions options = order_of(SampleOrder::kRandom, 3, 1);
    options.weights = std::make_shared<const std::vector<double>>(weights);
    EXPECT_EQ(code(options), Code::kInvalidArgument) << weights.size();
  }
}

}  // namespace
}  // namespace hanji::data::internal
