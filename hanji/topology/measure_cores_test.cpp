#include "hanji/topology/measure_cores.h"

#include <gmock/gmock.h>
#include <sched.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/test/cache_rate.h"
#include "hanji/topology/read_graph.h"

namespace hanji::topology {
namespace {

using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<int> all_cpus_of(const Machine& machine) {
  std::vector<int> cpus;
  for (const std::vector<int>& core : machine.core_cpus) {
    cpus.insert(cpus.end(), core.begin(), core.end());
  }
  std::ranges::sort(cpus);
  return cpus;
}

TEST(MeasureCores, EveryPairAndNumberOfCopiesHasAFigureOrAReason) {
  const auto machine = read_machine();
  const auto graph = read_graph();
  ASSERT_TRUE(machine.ok() && graph.ok());
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const CoreRates rates = measure_cores(*graph, *machine, std::chrono::minutes(1));
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  std::vector<CpuPair> pairs;
  for (const PairRate& one : rates.pairs) {
    pairs.push_back(one.pair);
    EXPECT_EQ(one.unknown.empty(), one.latency_seconds > 0 && one.bytes_per_second > 0);
  }
  EXPECT_EQ(pairs, representative_pairs(*graph, all_cpus_of(*machine)));
  std::vector<int> copies;
  for (const CopyRate& one : rates.copies) {
    copies.push_back(one.num_copies);
    EXPECT_EQ(one.unknown.empty(), one.bytes_per_second > 0);
  }
  const auto cores = static_cast<int>(machine->core_cpus.size());
  EXPECT_EQ(copies, copy_counts(std::min(machine->usable_cores, cores)));
  EXPECT_GT(rates.copies[0].bytes_per_second, 0) << rates.copies[0].unknown;
}

// What holds on any machine, however loaded: a figure is of something that took place while all was
// measured, and no core copies through memory faster than within its cache.
TEST(MeasureCores, NoFigureIsOfLongerThanItTookOrFasterThanACache) {
  const auto machine = read_machine();
  const auto graph = read_graph();
  ASSERT_TRUE(machine.ok() && graph.ok());
  const CoreRates rates = measure_cores(*graph, *machine, std::chrono::minutes(1));
  const double fastest = 2 * test::cached_copy_rate();  // a clock may rise by less than that
  constexpr double kRoundTrips = 200;                   // of the shortest batch
  double copied_seconds = 0;
  for (const PairRate& one : rates.pairs) {
    EXPECT_LE(2 * kRoundTrips * one.latency_seconds, rates.seconds);
    EXPECT_LE(one.bytes_per_second, fastest);
    if (one.bytes_per_second > 0) {
      copied_seconds += static_cast<double>(rates.bytes) / one.bytes_per_second;
    }
  }
  for (const CopyRate& one : rates.copies) {
    EXPECT_LE(one.bytes_per_second, one.num_copies * fastest);
    if (one.bytes_per_second > 0) {
      copied_seconds += static_cast<double>(rates.bytes) / one.bytes_per_second;
    }
  }
  EXPECT_LE(copied_seconds, rates.seconds);
}

TEST(MeasureCores, AnImpossibleCpuIsUnknownWithTheReason) {
  const auto graph = read_graph({.synthetic = "pack:1 core:2 pu:1"});
  ASSERT_TRUE(graph.ok());
  Machine machine;
  machine.usable_cores = 2;
  machine.core_cpus = {{100000}, {100001}};
  const CoreRates rates = measure_cores(*graph, machine);
  ASSERT_THAT(rates.pairs, SizeIs(1));
  EXPECT_EQ(rates.pairs[0].latency_seconds, 0);
  EXPECT_THAT(rates.pairs[0].unknown, HasSubstr("cannot pin to CPU 10000"));
  EXPECT_THAT(rates.copies, SizeIs(2));
  EXPECT_THAT(rates.copies, Each(Field(&CopyRate::unknown, HasSubstr("cannot pin to CPU"))));
}

TEST(MeasureCores, AfterTheBudgetTheRestIsLeftOutWithThatReason) {
  const auto machine = read_machine();
  const auto graph = read_graph();
  ASSERT_TRUE(machine.ok() && graph.ok());
  const CoreRates rates = measure_cores(*graph, *machine, std::chrono::nanoseconds(0));
  EXPECT_THAT(rates.copies, Each(Field(&CopyRate::unknown, HasSubstr("time for measuring"))));
  EXPECT_LT(rates.seconds, 1);
}

TEST(CoreRates, TextAndJsonSayWhatIsUnknown) {
  CoreRates rates{.bytes = 1 << 20};
  rates.pairs = {{.pair = {PairKind::kSameCache, 0, 1}, .latency_seconds = 1e-7, .unknown = "why"}};
  rates.copies = {{.num_copies = 2, .bytes_per_second = 20e9}};
  EXPECT_THAT(core_rates_text(rates), HasSubstr("flag 100 ns, copy unknown: why"));
  EXPECT_THAT(core_rates_text(rates), HasSubstr("2 copies at once: 20.0 GB/s, 10.0 GB/s each"));
  const auto json = base::parse_json(core_rates_json(rates));
  ASSERT_TRUE(json.ok());
  EXPECT_TRUE((*json)["pairs"][0]["bytes_per_second"].is_null());
  EXPECT_EQ((*json)["pairs"][0]["unknown"], "why");
  EXPECT_EQ((*json)["copies"][0]["bytes_per_second"], 20e9);
}

}  // namespace
}  // namespace hanji::topology
