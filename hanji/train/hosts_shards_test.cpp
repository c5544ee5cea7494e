// One state sharded over the ranks of several hosts: in stable the hash of one process, calls and bytes between
// hosts those of the plan, checkpoints of which every rank writes and reads its shards.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "hanji/comm/gloo/group.h"
#include "hanji/plan/test_plan.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/test_dataset.h"
#include "hanji/train/test_hosts_run.h"

namespace hanji::train {
namespace {

using plan::Sharding;

struct OnHosts {
  Sharding data;
  std::vector<int> ranks;  ///< Of each host.
  int64_t fsdp = plan::kAuto;
  int64_t tp = 1;
  plan::Reshard reshard = plan::Reshard::kAuto;
};

std::string to_string(const OnHosts& of) {
  return fmt::format("{} on hosts of {}, fsdp {}, tp {}, reshard {}", name_of(of.data),
                     fmt::join(of.ranks, ", "), of.fsdp, of.tp, name_of(of.reshard));
}

plan::Plan planned(const OnHosts& of, plan::Bits bits) {
  plan::PlanInputs inputs = plan::test_plan::small_gpt(bytes_of_text().facts());
  set_steps_on_hosts(inputs, of.ranks, bits);
  plan::Config& config = inputs.config;
  config.parallel.data = of.data;
  config.parallel.reshard = of.reshard;
  config.mesh.fsdp = of.fsdp;
  config.mesh.tp = of.tp;
  config.model.dropout = 0.1;
  if (of.tp > 1) inputs.model = count_facts(config, Workload{bytes_of_text()});
  return plan::make_plan(inputs).or_throw();
}

HostsRun run(const OnHosts& of, plan::Bits bits, const std::filesystem::path& folder) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  const auto join_of = [&](int rank) {
    return comm::gloo::make_join(store, rank, comm::gloo::kLoopback);
  };
  return run_on_hosts(planned(of, bits), of.ranks, join_of, bytes_of_text(), folder);
}

TEST(ShardsOnHosts, AreOneProcessInStableAndMoveWhatThePlanSays) {
  if (!comm::gloo::available()) GTEST_SKIP() << "this build has no Gloo";
  const test::TemporaryFolder folder;
  const HostsRun one = run({Sharding::kReplicas, {1}}, plan::Bits::kStable, folder.path() / "one");
  const OnHosts cases[] = {
      {Sharding::kZero1, {2, 1}},
      {Sharding::kZero2, {1, 1}},
      {Sharding::kZero3, {2, 2}},
      {Sharding::kZero3, {1, 2, 1}},
      {.data = Sharding::kZero3, .ranks = {1, 1}, .reshard = plan::Reshard::kStep},
      {.data = Sharding::kHybrid, .ranks = {1, 2, 1}, .fsdp = 2},
  };
  int number = 0;
  for (const OnHosts& of : cases) {
    const plan::Prediction plan = planned(of, plan::Bits::kStable).predicted;
    const HostsRun found = run(of, plan::Bits::kStable, folder.path() / std::to_string(number++));
    EXPECT_EQ(found.hash, one.hash) << to_string(of);
    EXPECT_THAT(found.restored, testing::Each(one.hash)) << to_string(of);
    EXPECT_EQ(found.network_bytes, plan.network_bytes_per_step) << to_string(of);
    EXPECT_EQ(found.collectives, plan.collectives_per_step) << to_string(of);
  }
}

TEST(ShardsOnHosts, AccumulateMicroBatchesAndMoveWhatThePlanSays) {
  if (!comm::gloo::available()) GTEST_SKIP() << "this build has no Gloo";
  const test::TemporaryFolder folder;
  // Two hosts of two sum as four ranks of one do.
  const HostsRun one = run({Sharding::kReplicas, {4}}, plan::Bits::kRun, folder.path() / "one");
  const HostsRun cut = run({.data = Sharding::kZero3, .ranks = {4}, .tp = 2}, plan::Bits::kRun,
                           folder.path() / "cut");
  const OnHosts cases[] = {
      {Sharding::kZero1, {2, 2}},
      {Sharding::kZero2, {2, 2}},
      {Sharding::kZero3, {2, 2}},
      {.data = Sharding::kZero3, .ranks = {2, 2}, .reshard = plan::Reshard::kStep},
      {.data = Sharding::kHybrid, .ranks = {2, 2}, .fsdp = 4},
      {.data = Sharding::kZero3, .ranks = {2, 2}, .tp = 2},
      {.data = Sharding::kZero1, .ranks = {2, 2}, .tp = 2},
  };
  int number = 0;
  for (const OnHosts& of : cases) {
    const plan::Prediction plan = planned(of, plan::Bits::kRun).predicted;
    const HostsRun found = run(of, plan::Bits::kRun, folder.path() / std::to_string(number++));
    EXPECT_EQ(found.hash, of.tp == 1 ? one.hash : cut.hash) << to_string(of);
    EXPECT_THAT(found.restored, testing::Each(found.hash)) << to_string(of);
    EXPECT_EQ(found.network_bytes, plan.network_bytes_per_step) << to_string(of);
    EXPECT_EQ(found.collectives, plan.collectives_per_step) << to_string(of);
  }
}

}  // namespace
}  // namespace hanji::train
