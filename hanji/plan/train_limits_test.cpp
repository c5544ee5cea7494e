#include "hanji/plan/train_limits.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <numeric>

#include "hanji/base/json.h"
#include "hanji/base/limits.h"
#include "hanji/plan/capacity.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/plan.h"

namespace hanji::plan {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// As many GPUs and as much memory as any of these jobs asks for.
PlanInputs inputs_for(Sharding data, Device device, const std::vector<int>& hosts, int group) {
  PlanInputs inputs;
  inputs.machine.usable_cores = 2;
  inputs.machine.available_bytes = int64_t{64} << 30;
  inputs.data = {65, 10000, 1000};
  inputs.kernels.gemm = Gemm::kMkl;
  inputs.kernels.attention = Attention::kFlash;
  inputs.gpus = {.count = 2 * base::kMaxRanksPerHost};
  inputs.config.compute.device = device;
  inputs.config.parallel.data = data;
  inputs.config.run.ranks = std::reduce(hosts.begin(), hosts.end());
  inputs.config.train.global_batch = 48;  // a grain for every rank
  if (data == Sharding::kHybrid) inputs.config.mesh.fsdp = group;
  if (hosts.size() > 1) inputs.ranks_per_host = hosts;
  return inputs;
}

CapacityQuery query_for(Device device, const std::vector<int>& hosts, int group) {
  CapacityQuery query;
  query.model = find_model("gpt:124M", {}).or_throw();
  query.device = find_device(device == Device::kCpu ? "cpu-64GB" : "h100-80").or_throw();
  query.ranks.ranks = std::reduce(hosts.begin(), hosts.end());
  query.ranks.hybrid_ranks = group;
  query.ranks_per_host = hosts[0];
  query.widths = kTrainWidths;
  return query;
}

struct Cell {
  Device device;
  std::vector<int> hosts;
  int group;
};

const std::vector<Cell> kCells = {
    {Device::kCpu, {4}, 2},          {Device::kCpu, {4}, 4},    {Device::kCpu, {2, 2}, 2},
    {Device::kCpu, {2, 2}, 4},       {Device::kCpu, {3, 1}, 2}, {Device::kCpu, {1}, 1},
    {Device::kCpu, {4, 4, 4, 4}, 4}, {Device::kCuda, {4}, 2},   {Device::kCuda, {2, 2}, 2},
    {Device::kCuda, {1}, 1},         {Device::kCpu, {17}, 1},   {Device::kCpu, {16, 8}, 8},
};

TEST(TrainLimits, PlanMarksWhatTrainRefusesForEveryStrategyDeviceAndHosts) {
  int num_refused = 0, num_taken = 0;
  for (const Cell& cell : kCells) {
    for (const Sharding data : kShardings) {
      TrainSetup setup = setup_of(query_for(cell.device, cell.hosts, cell.group), data);
      setup.servers =
          0;  // every rank of a job serves; servers beside them have a test of their own
      const auto plan = make_plan(inputs_for(data, cell.device, cell.hosts, cell.group));
      EXPECT_EQ(plan.ok(), train_limits(setup).empty())
          << name_of(data) << " on " << name_of(cell.device) << ", " << cell.hosts.size()
          << " hosts, groups of " << cell.group << ": " << plan.status().message();
      ++(plan.ok() ? num_taken : num_refused);
    }
  }
  EXPECT_GE(num_taken, 20);
  EXPECT_GE(num_refused, 20);
}

TEST(TrainLimits, WhatAnyHostsRuleOutIsRefusedBeforeTheyAreKnown) {
  for (const Sharding data : kShardings) {
    for (const Engine engine : {Engine::kShm, Engine::kGloo, Engine::kMpi}) {
      Config config;
      config.parallel.data = data;
      config.comm.engine = engine;
      const TrainSetup setup{.data = data, .engine = engine};
      EXPECT_EQ(find_contradictions(config).empty(), train_limits(setup).empty())
          << name_of(data) << " over " << name_of(engine);
    }
  }
}

TEST(TrainLimits, TrainKeepsTheWidthsThatAreNotMarked) {
  const Plan plan = make_plan(inputs_for(Sharding::kReplicas, Device::kCpu, {2}, 1)).or_throw();
  const double parameters = static_cast<double>(plan.model.num_parameters());
  const int64_t widths[] = {kTrainWidths.parameter, kTrainWidths.gradient, kTrainWidths.optimizer};
  for (int i = 0; i < 3; ++i) {
    // Buckets begin at multiples of 64 bytes: a line of the flat layout per parameter at most.
    const double bytes = static_cast<double>(plan.memory[i].bytes);
    const double holes = 64.0 * static_cast<double>(plan.model.parameter_sizes().size());
    EXPECT_NEAR(bytes, parameters * static_cast<double>(widths[i]), 3 * holes)
        << plan.memory[i].category;
  }
  EXPECT_THAT(train_limits({.widths = kMixedAdam}), testing::ElementsAre(TrainLimit::kWidths));
}

TEST(TrainLimits, RanksAreLimitedOnEachHostAndServersCompute) {
  constexpr int kMaxRanks = base::kMaxRanksPerHost;
  EXPECT_TRUE(has_limit({.hosts = {{1, kMaxRanks + 1}}}, TrainLimit::kRanks));
  EXPECT_FALSE(has_limit({.hosts = {{kMaxRanks, kMaxRanks}}}, TrainLimit::kRanks));
  EXPECT_TRUE(has_limit({.data = Sharding::kServer, .servers = 1}, TrainLimit::kServers));
}

TEST(TrainLimits, EveryRecommendationSaysWhatTrainRefuses) {
  CapacityQuery query = query_for(Device::kCuda, {1}, 1);
  query.model = find_model("gpt:7B", {}).or_throw();
  query.widths = kMixedAdam;
  const std::string text = describe(query);
  EXPECT_THAT(text, HasSubstr("* not in hanji train yet:"));
  EXPECT_THAT(text, HasSubstr("on GPUs: server, zero1, zero2, zero3, hsdp"));
  EXPECT_THAT(text, HasSubstr("with states of other bytes than 4 + 4 + 8: every strategy"));
  const auto json = base::Json::parse(to_json(query));
  ASSERT_EQ(json["changes"].size(), 3u);
  for (const auto& change : json["changes"]) {
    EXPECT_THAT(change["not_in_train"].dump(), HasSubstr("on GPUs"));
    EXPECT_THAT(text, testing::ContainsRegex(change["words"].get<std::string>() +
                                             "\n.*\n *not in hanji train yet"));
  }
}

TEST(TrainLimits, ShardsOverHostsAreCarriedOutAndEveryRankHasItsParametersThere) {
  const auto bytes_of_host = [](std::vector<int> hosts, Sharding data, std::string_view category) {
    CapacityQuery query = query_for(Device::kCpu, hosts, 1);
    const Capacity capacity = capacity_of(query, data);
    EXPECT_THAT(capacity.not_in_train, IsEmpty()) << name_of(data);
    return std::ranges::find(capacity.host, category, &MemoryLine::category)->bytes;
  };
  const int64_t parameters = bytes_of_host({2}, Sharding::kZero1, "parameters");
  EXPECT_EQ(bytes_of_host({2, 2}, Sharding::kZero1, "parameters"), 2 * parameters)
      << "ranks of one host share a copy, those of several do not";
  EXPECT_LT(bytes_of_host({2, 2}, Sharding::kZero3, "parameters"), parameters);
  EXPECT_GT(bytes_of_host({2, 2}, Sharding::kZero3, "staging"),
            bytes_of_host({2, 2}, Sharding::kReplicas, "staging"))
      << "a layer, and not a bucket";
  const std::string text = describe(query_for(Device::kCpu, {2, 2}, 4));
  EXPECT_THAT(text, HasSubstr("over several hosts: server\n"));
}

TEST(TrainLimits, WhatTrainCarriesOutHasNoMark) {
  CapacityQuery query = query_for(Device::kCpu, {2}, 2);
  const std::string text = describe(query);
  EXPECT_THAT(text, HasSubstr("with servers that do not compute: server\n"));
  EXPECT_THAT(text, HasSubstr("\nzero2 "));
  EXPECT_THAT(text, Not(HasSubstr("zero2*")));
  EXPECT_EQ(base::Json::parse(to_json(query))["strategies"]["zero2"]["not_in_train"].size(), 0u);
}

}  // namespace
}  // namespace hanji::plan
