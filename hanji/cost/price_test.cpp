#include "hanji/cost/price.h"

#include <gtest/gtest.h>

#include "hanji/cost/select.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"

namespace hanji::cost {
namespace {

// Round numbers: 10 GB/s memory, 100 GB/s cached, one rank as fast as all, 1 us per sync.
Rates round_rates() {
  Rates rates;
  rates.memory_bytes_per_second = 10e9;
  rates.cached_bytes_per_second = 100e9;
  rates.copy_bytes_per_second = 10e9;
  rates.sync_seconds = 1e-6;
  rates.cache_bytes = 1 << 20;
  return rates;
}

TEST(Price, DirectAllReduceMoves2pNInTwoSyncs) {
  const int64_t count = 64 * 100000;
  for (const int ranks : {1, 2, 4}) {
    const auto list = schedule::all_reduce_direct(ranks, count);
    const double traffic = 2.0 * ranks * static_cast<double>(count) * 4;
    EXPECT_NEAR(price_seconds(list, 4, round_rates()), 2e-6 + traffic / 10e9, 1e-12);
  }
}

TEST(Price, SmallTensorsGoAtTheCachedRate) {
  const auto list = schedule::all_reduce_direct(2, 64 * 100);
  EXPECT_NEAR(price_seconds(list, 4, round_rates()), 2e-6 + 4 * 25600.0 / 100e9, 1e-12);
}

TEST(Price, TermsAddUpToTheWhole) {
  const auto list = schedule::all_reduce_flat(2, 64 * 100);
  const Terms terms = price_terms(list, 4, round_rates());
  EXPECT_DOUBLE_EQ(terms.seconds(), price_seconds(list, 4, round_rates()));
  EXPECT_DOUBLE_EQ(terms.latency, 1e-6);
  EXPECT_EQ(terms.rounds, 1);
  // Each rank copies: reads 1, writes 1; and reduces: reads 2, writes 1.
  EXPECT_NEAR(terms.reduction / (terms.reduction + terms.bandwidth), 3.0 / 5, 1e-12);
  EXPECT_EQ(price_terms(schedule::barrier(4), 1, round_rates()).reduction, 0);
}

// Fitted costs with one number for everything of a kind.
Rates fitted_rates(int ranks) {
  Rates rates = round_rates();
  FittedCosts costs;
  costs.ranks = ranks;
  costs.processors = 2;
  costs.sync_seconds = 1e-6;
  for (Level& level : costs.levels) {
    level.update = 1e-10;
    level.read = level.write = 2e-10;
    level.combine.fill(1e-11);
    level.combine[fitted_type(DType::kBFloat16)] = 1e-10;
  }
  rates.fitted = costs;
  return rates;
}

TEST(Price, FittedCostsCountWhereTheyAreOfAsManyRanks) {
  const int64_t count = 1 << 20;
  const auto list = schedule::all_reduce_direct(2, count);
  const Terms terms = price_terms(list, DType::kFloat32, fitted_rates(2));
  EXPECT_NEAR(terms.latency, 2e-6, 1e-12);
  EXPECT_NEAR(terms.reduction, 4.0 * count * 1e-10 + 2.0 * count * 1e-11, 1e-12);
  EXPECT_EQ(terms.bandwidth, 0);
  EXPECT_DOUBLE_EQ(price_seconds(list, 4, fitted_rates(4)), price_seconds(list, 4, round_rates()));
}

TEST(Price, ATypeHasItsOwnRateOfReduction) {
  const auto list = schedule::all_reduce_direct(2, 1 << 20);
  const Rates rates = fitted_rates(2);
  EXPECT_GT(price_seconds(list, DType::kBFloat16, rates),
            1.2 * price_seconds(list, DType::kFloat16, rates));
  EXPECT_EQ(price_seconds(list, 2, rates), price_seconds(list, DType::kBFloat16, rates));
}

TEST(Price, PartsAddUpToTheWholeLargestFirst) {
  const auto list = schedule::all_reduce_flat(2, 1000);
  const auto parts = price_parts(list, 4, fitted_rates(2));
  double sum = 0, last = 1;
  for (const Part& part : parts) {
    EXPECT_LE(part.seconds, last);
    last = part.seconds;
    sum += part.seconds;
  }
  EXPECT_NEAR(sum, price_seconds(list, 4, fitted_rates(2)), 1e-15);
  EXPECT_EQ(parts.front().name, "read");
  EXPECT_TRUE(price_parts(list, 4, round_rates()).empty());
}

TEST(Price, MoreElementsNeverCostLess) {
  for (const Rates& rates : {round_rates(), fitted_rates(2)}) {
    double last = 0;
    for (int64_t count = 1; count < 1 << 24; count *= 2) {
      const double seconds = price_seconds(schedule::all_reduce_direct(2, count), 4, rates);
      EXPECT_GE(seconds, last * (1 - 1e-12)) << count;
      last = seconds;
    }
  }
}

TEST(Price, OfACallIsThatOfTheListAndOfThePlaceOfItsTensors) {
  Rates rates = fitted_rates(2);
  for (const char* algorithm : {"direct", "flat", "staged"}) {
    rates.fitted->corrections.push_back(
        {schedule::Routine::kAllGather, algorithm, DType::kFloat32, false, {{1, 7}}});
  }
  Chooser chooser(rates);
  Query query{.routine = schedule::Routine::kAllGather,
              .element_bytes = 4,
              .ranks = 2,
              .count = 1 << 16,
              .dtype = DType::kFloat32};
  const Selection& chosen = chooser.select(query);
  ASSERT_NE(chosen.in_heap, chosen.if_private);
  EXPECT_DOUBLE_EQ(price_seconds(query, chooser),
                   price_seconds(*chosen.in_heap, DType::kFloat32, rates));
  query.in_heap = false;
  EXPECT_DOUBLE_EQ(price_seconds(query, chooser),
                   7 * price_seconds(*chosen.if_private, DType::kFloat32, rates));
}

TEST(Price, ABarrierIsOneSync) {
  EXPECT_DOUBLE_EQ(price_seconds(schedule::barrier(4), 1, round_rates()), 1e-6);
}

TEST(Price, TheSlowestRankIsWaitedFor) {
  Rates rates = round_rates();
  rates.copy_bytes_per_second = 1e9;  // one rank reaches a tenth of what all reach together
  const int64_t count = 64 * 100000;
  const double bytes = static_cast<double>(count) * 4;
  // Epoch 0: the root alone reads 1 and writes 1 tensor and 1 slot; epoch 1: one rank copies out.
  const double tensor = bytes / 1e9, slot = bytes / 10e9;
  EXPECT_NEAR(price_seconds(schedule::broadcast_flat(2, count, 0), 4, rates),
              1e-6 + (2 * tensor + slot) + (tensor + slot), 1e-9);
}

TEST(Price, BytesScaleWithTheElement) {
  const auto list = schedule::all_reduce_direct(2, 64 * 100000);
  Rates rates = round_rates();
  rates.sync_seconds = 1e-15;
  EXPECT_NEAR(price_seconds(list, 8, rates) / price_seconds(list, 4, rates), 2, 1e-6);
}

}  // namespace
}  // namespace hanji::cost
