#include "hanji/topology/measure_cores.h"

#include <gmock/gmock.h>
#include <sched.h>

#include "hanji/base/json.h"
#include "hanji/topology/read_graph.h"

namespace hanji::topology {
namespace {

using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::SizeIs;

TEST(MeasureCores, ThisHostWithinPlausibleBounds) {
  const auto machine = read_machine();
  const auto graph = read_graph();
  ASSERT_TRUE(machine.ok() && graph.ok());
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const CoreRates rates = measure_cores(*graph, *machine);
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_GE(rates.bytes, 1 << 20);
  for (const PairRate& one : rates.pairs) {
    if (!one.unknown.empty()) continue;  // a machine that is held by others
    EXPECT_GT(one.latency_seconds, 1e-9);
    EXPECT_LT(one.latency_seconds, 0.1);
    EXPECT_GT(one.bytes_per_second, 1e7);
    EXPECT_LT(one.bytes_per_second, 1e12);
  }
  ASSERT_FALSE(rates.copies.empty());
  for (const CopyRate& one : rates.copies)
    EXPECT_TRUE(one.bytes_per_second > 0 || !one.unknown.empty());
  EXPECT_GT(rates.copies[0].bytes_per_second, 0) << rates.copies[0].unknown;
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
