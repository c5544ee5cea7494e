#include "hanji/topology/machine.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <unistd.h>

#include <set>

#include "hanji/base/json.h"

namespace hanji::topology {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Machine four_cores_with_two_threads_each() {
  Machine machine;
  machine.physical_cores = 4;
  machine.usable_cores = 4;
  machine.core_cpus = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  return machine;
}

TEST(CpusPerRank, OneCpuOfEachCoreInNeighbouringBlocks) {
  const Machine machine = four_cores_with_two_threads_each();
  EXPECT_THAT(cpus_per_rank(machine, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(cpus_per_rank(machine, 3),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2, 3)));
  EXPECT_THAT(cpus_per_rank(machine, 1), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(CpusPerRank, MoreRanksThanCoresPinsNobody) {
  EXPECT_THAT(cpus_per_rank(four_cores_with_two_threads_each(), 5), IsEmpty());
  EXPECT_THAT(cpus_per_rank(four_cores_with_two_threads_each(), 0), IsEmpty());
}

TEST(CpusPerRank, AQuotaLeavesTheOtherCoresAlone) {
  Machine machine = four_cores_with_two_threads_each();
  machine.usable_cores = 2;
  EXPECT_THAT(cpus_per_rank(machine, 2), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(cpus_per_rank(machine, 3), IsEmpty());
}

TEST(UsableCores, TheQuotaRoundsDownButNeverToZero) {
  EXPECT_EQ(usable_cores(8, 0), 8);
  EXPECT_EQ(usable_cores(8, 2.9), 2);
  EXPECT_EQ(usable_cores(8, 0.5), 1);
  EXPECT_EQ(usable_cores(2, 16), 2);
  EXPECT_EQ(usable_cores(0, 0), 1);
}

TEST(ReadMachine, SaysOfThisHostWhatTheSystemSays) {
  const auto machine = read_machine();
  ASSERT_TRUE(machine.ok()) << machine.status().to_string();
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_GE(machine->physical_cores, machine->usable_cores);
  EXPECT_GE(machine->usable_cores, 1);
  EXPECT_LE(machine->usable_cores, CPU_COUNT(&mask));
  EXPECT_LE(machine->physical_cores, ::sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_LE(machine->memory_bytes, ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE));
  EXPECT_GT(machine->available_bytes, 0);
  EXPECT_LE(machine->available_bytes, machine->memory_bytes);
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof(name) - 1), 0);
  EXPECT_EQ(machine->hostname, name);
}

TEST(ReadMachine, TheAffinityMaskOfTheThreadCounts) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const auto machine = read_machine();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(machine->usable_cores, 1);
  EXPECT_THAT(machine->core_cpus, ElementsAre(ElementsAre(first)));
}

TEST(MachineJson, HoldsEveryField) {
  Machine machine = four_cores_with_two_threads_each();
  machine.cpu_model = "quoted \"model\"";
  machine.caches = {{1, 32768, 1}};
  machine.numa_nodes = {{0, 1024, {0, 1}}};
  const auto json = base::parse_json(to_json(machine));
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_EQ((*json)["cpu_model"], "quoted \"model\"");
  EXPECT_EQ((*json)["core_cpus"][1][1], 5);
  EXPECT_EQ((*json)["caches"][0]["bytes"], 32768);
  EXPECT_EQ((*json)["numa_nodes"][0]["cpus"][1], 1);
}

}  // namespace
}  // namespace hanji::topology
