// Axes along which layers call, tp, cp and axial, in jobs on several hosts: in stable the hash of one process,
// in run that of the same mesh on one host; calls and bytes between hosts those of the plan; checkpoints.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <numeric>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "hanji/comm/gloo/group.h"
#include "hanji/plan/rank_memory.h"
#include "hanji/plan/test_plan.h"
#include "hanji/test/temporary_folder.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/test_dataset.h"
#include "hanji/train/test_hosts_run.h"

namespace hanji::train {
namespace {

using plan::Bits;
using plan::Sharding;

struct AxesOnHosts {
  std::vector<int> ranks;  ///< Of each host.
  int64_t pp = 1, cp = 1, tp = 1, axial = 1;
  plan::ContextWay way = plan::ContextWay::kAuto;
  bool sequence = false;
  plan::Moves moves = plan::Moves::kAuto;
  plan::TriangleWay triangle = plan::TriangleWay::kAuto;
  Sharding data = Sharding::kReplicas;
  int64_t fsdp = plan::kAuto;
  bool are_pairs = false;
};

std::string to_string(const AxesOnHosts& of) {
  return fmt::format("{} on hosts of {}: pp {}, fsdp {}, cp {}, tp {}, axial {}, {}, {}, {}{}",
                     plan::name_of(of.data), fmt::join(of.ranks, ", "), of.pp, of.fsdp, of.cp,
                     of.tp, of.axial, plan::name_of(of.way), plan::name_of(of.moves),
                     plan::name_of(of.triangle), of.sequence ? ", sequence" : "");
}

plan::Config pairs() {
  plan::Config config;
  config.model = {.preset = "evoformer-tiny", .layers = 1, .width = 8, .dropout = 0.25};
  config.data.pairs = plan::Pairs::kContacts;
  config.data.residues = 9;
  config.data.sequences = 7;
  config.data.systems = 60;
  return config;
}

const Dataset& dataset_of(const AxesOnHosts& of) {
  static const Dataset of_pairs = open_dataset(pairs()).or_throw();
  return of.are_pairs ? of_pairs : bytes_of_text();
}

plan::PlanInputs inputs_of(const AxesOnHosts& of) {
  const plan::DataFacts data = dataset_of(of).facts();
  plan::PlanInputs inputs = plan::test_plan::small_gpt(data);
  if (of.are_pairs) {
    inputs.config.model = pairs().model;
    inputs.config.data = pairs().data;
    return inputs;
  }
  inputs.config.model.heads = 4;
  inputs.config.model.dropout = of.way == plan::ContextWay::kRing ? 0 : 0.1;
  return inputs;
}

plan::Plan plan_on_axes(const AxesOnHosts& of, Bits bits) {
  plan::PlanInputs inputs = inputs_of(of);
  set_steps_on_hosts(inputs, of.ranks, bits);
  plan::Config& config = inputs.config;
  config.parallel.data = of.data;
  config.mesh.pp = of.pp;
  config.mesh.fsdp = of.fsdp;
  config.mesh.cp = of.cp;
  config.mesh.tp = of.tp;
  config.mesh.axial = of.axial;
  config.parallel.sequence = of.sequence;
  config.parallel.moves = of.moves;
  config.parallel.context = of.way;
  config.parallel.triangle = of.triangle;
  if (bits == Bits::kStable) {
    config.train.cuts = {.features = of.are_pairs ? 1 : 4, .tokens = 4};
  }
  inputs.model = count_facts(config, Workload{dataset_of(of)});
  return plan::make_plan(inputs).or_throw();
}

HostsRun run_on_axes(const AxesOnHosts& of, Bits bits, const std::filesystem::path& folder) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  const auto join_of = [&](int rank) {
    return comm::gloo::make_join(store, rank, comm::gloo::kLoopback);
  };
  return run_on_hosts(plan_on_axes(of, bits), of.ranks, join_of, dataset_of(of), folder);
}

int64_t staging_of(const plan::Plan& plan, int rank) {
  for (const plan::MemoryLine& line : plan::rank_memory(plan, plan.micro_batch, rank)) {
    if (line.category == "staging between hosts") return line.bytes;
  }
  return 0;
}

void expect_planned(const HostsRun& found, const AxesOnHosts& of, Bits bits) {
  const plan::Plan plan = plan_on_axes(of, bits);
  EXPECT_THAT(found.restored, testing::Each(found.hash)) << to_string(of);
  EXPECT_EQ(found.network_bytes, plan.predicted.network_bytes_per_step) << to_string(of);
  EXPECT_EQ(found.collectives, plan.predicted.collectives_per_step) << to_string(of);
  // What ranks compare before step 1 goes through it too: some bytes of each parameter. What layers exchange
  // is more.
  constexpr int64_t kRoom = 6 << 10;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    EXPECT_NEAR(found.staging[rank], staging_of(plan, rank), kRoom)
        << to_string(of) << ", rank " << rank;
  }
}

class AxesOnHostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!comm::gloo::available()) GTEST_SKIP() << "this build has no Gloo";
  }
  std::filesystem::path folder() { return folder_.path() / std::to_string(number_++); }
  void expect_stable(const std::vector<AxesOnHosts>& cases) {
    const AxesOnHosts one_process{.ranks = {1}, .are_pairs = cases[0].are_pairs};
    const HostsRun one = run_on_axes(one_process, Bits::kStable, folder());
    for (const AxesOnHosts& of : cases) {
      const HostsRun found = run_on_axes(of, Bits::kStable, folder());
      EXPECT_EQ(found.hash, one.hash) << to_string(of);
      expect_planned(found, of, Bits::kStable);
    }
  }
  /// Hosts of as many ranks, a power of two: sums over a host, then over hosts, are those of one host.
  void expect_run(const std::vector<AxesOnHosts>& cases) {
    for (const AxesOnHosts& of : cases) {
      AxesOnHosts here = of;
      here.ranks = {std::reduce(of.ranks.begin(), of.ranks.end())};
      const HostsRun found = run_on_axes(of, Bits::kRun, folder());
      EXPECT_EQ(found.hash, run_on_axes(here, Bits::kRun, folder()).hash) << to_string(of);
      expect_planned(found, of, Bits::kRun);
    }
  }

 private:
  test::TemporaryFolder folder_;
  int number_ = 0;
};

TEST_F(AxesOnHostsTest, InsideHostsAreOneProcessInStableAndMoveWhatThePlanSays) {
  expect_stable({{.ranks = {2, 2}, .cp = 2},
                 {.ranks = {2, 4}, .cp = 2, .data = Sharding::kZero1},
                 {.ranks = {2, 2}, .cp = 2, .data = Sharding::kZero3},
                 {.ranks = {2, 2}, .pp = 2, .cp = 2},
                 {.ranks = {4, 4}, .cp = 2, .tp = 2, .data = Sharding::kZero2}});
}

TEST_F(AxesOnHostsTest, InsideHostsAddUpTermsAsOnOneAndMoveWhatThePlanSays) {
  expect_run({{.ranks = {2, 2}, .cp = 2},
              {.ranks = {2, 2}, .cp = 2, .way = plan::ContextWay::kRing},
              {.ranks = {2, 2}, .cp = 2, .data = Sharding::kZero1},
              {.ranks = {2, 2}, .cp = 2, .data = Sharding::kZero3},
              {.ranks = {2, 2}, .cp = 2, .data = Sharding::kHybrid, .fsdp = 1},
              {.ranks = {2, 2}, .pp = 2, .cp = 2}});
}

TEST_F(AxesOnHostsTest, OverHostsAreOneProcessInStableAndMoveWhatThePlanSays) {
  expect_stable({{.ranks = {1, 1}, .tp = 2},
                 {.ranks = {2, 1}, .tp = 3},
                 {.ranks = {3, 1}, .tp = 2},
                 {.ranks = {2, 2}, .tp = 4, .sequence = true},
                 {.ranks = {1, 1, 1, 1}, .tp = 2, .data = Sharding::kZero3},
                 {.ranks = {1, 1}, .cp = 2},
                 {.ranks = {2, 1}, .cp = 3, .data = Sharding::kZero1},
                 {.ranks = {2, 2}, .cp = 2, .tp = 2},
                 {.ranks = {3, 3}, .cp = 2, .data = Sharding::kZero2}});
}

TEST_F(AxesOnHostsTest, OverHostsAddUpTermsAsOnOneAndMoveWhatThePlanSays) {
  using plan::ContextWay;
  expect_run({{.ranks = {1, 1}, .tp = 2},
              {.ranks = {2, 2}, .tp = 4, .sequence = true},
              {.ranks = {1, 1}, .tp = 2, .moves = plan::Moves::kWeights},
              {.ranks = {1, 1, 1, 1}, .tp = 2, .data = Sharding::kZero1},
              {.ranks = {1, 1}, .cp = 2, .way = ContextWay::kRing},
              {.ranks = {2, 2}, .cp = 4, .way = ContextWay::kRing},
              {.ranks = {2, 2}, .cp = 4, .way = ContextWay::kUlysses, .data = Sharding::kZero3},
              {.ranks = {2, 2}, .cp = 2, .tp = 2, .way = ContextWay::kUlysses}});
}

TEST_F(AxesOnHostsTest, PairsInsideHostsAreOneProcessAndMoveWhatThePlanSays) {
  expect_stable({{.ranks = {2, 2}, .axial = 2, .data = Sharding::kZero2, .are_pairs = true}});
  expect_run({{.ranks = {2, 2}, .axial = 2, .are_pairs = true}});
}

TEST_F(AxesOnHostsTest, PairsOverHostsAreOneProcessAndMoveWhatThePlanSays) {
  expect_stable({{.ranks = {1, 1}, .axial = 2, .data = Sharding::kZero1, .are_pairs = true},
                 {.ranks = {2, 1}, .axial = 3, .are_pairs = true}});
  using plan::TriangleWay;
  expect_run({{.ranks = {1, 1}, .axial = 2, .triangle = TriangleWay::kRing, .are_pairs = true},
              {.ranks = {2, 2}, .axial = 4, .data = Sharding::kZero3, .are_pairs = true}});
}

}  // namespace
}  // namespace hanji::train
