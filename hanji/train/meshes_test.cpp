// Meshes of all axes train as one process does: in float64 under gradient descent to the last sums' order,
// and in `stable` with its bits, with the calls and bytes of their plans.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "hanji/plan/schema.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/test_job_run.h"

namespace hanji::train {
namespace {

struct MeshJob {
  std::string name;
  int ranks;
  std::vector<std::string> settings;
};

void PrintTo(const MeshJob& job, std::ostream* out) { *out << job.name; }

const std::string kGroups = "parallel.data=hsdp", kTwo = "mesh.dp=2", kInTwo = "mesh.fsdp=2";

/// Where an axis cuts layers, stages or states, alone and with others. Pairs of them are rows of
/// test_job_table.h, which every test run trains.
std::vector<MeshJob> meshes() {
  return {
      {"hsdp_tp", 8, {kGroups, kTwo, kInTwo, "mesh.tp=2"}},
      {"fsdp_pp", 4, {"parallel.data=zero3", "mesh.pp=2"}},
      {"pp_tp_recompute", 4, {"mesh.pp=2", "mesh.tp=2", "compute.recompute=true"}},
      {"fsdp_pp_tp", 8, {"parallel.data=zero3", "mesh.pp=2", "mesh.tp=2"}},
      {"dp_cp", 4, {"mesh.cp=2"}},
      {"fsdp_cp_tp", 8, {"parallel.data=zero3", "mesh.cp=2", "mesh.tp=2"}},
      {"cp", 2, {"mesh.cp=2", "compute.recompute=true"}},
      {"cp_uneven", 3, {"mesh.cp=3"}},
      {"fsdp_cp", 4, {"parallel.data=zero3", "mesh.cp=2"}},
      {"hsdp_cp", 8, {kGroups, kTwo, kInTwo, "mesh.cp=2"}},
      {"cp_tp", 4, {"mesh.cp=2", "mesh.tp=2", "compute.recompute=true"}},
      {"pp_cp", 4, {"mesh.pp=2", "mesh.cp=2"}},
      {"pp_cp_uneven", 6, {"mesh.pp=2", "mesh.cp=3", "compute.recompute=true"}},
      {"zero3_pp_cp", 8, {"parallel.data=zero3", "mesh.pp=2", "mesh.cp=2"}},
      {"zero2_pp_cp_looped",
       8,
       {"parallel.data=zero2", "mesh.pp=2", "mesh.cp=2", "pipeline.schedule=interleaved",
        "pipeline.virtual_stages=2"}},
      {"pp_cp_tp", 8, {"mesh.pp=2", "mesh.cp=2", "mesh.tp=2"}},
      {"dp", 2, {}},
      {"dp_recompute", 3, {"compute.recompute=true"}},
      {"fsdp", 4, {"parallel.data=zero3"}},
      {"fsdp_recompute", 2, {"parallel.data=zero3", "compute.recompute=true"}},
      {"hsdp", 4, {kGroups, kTwo, kInTwo}},
      {"tp", 2, {"mesh.tp=2"}},
      {"tp_uneven", 3, {"mesh.tp=3", "parallel.sequence=true"}},
      {"pp", 2, {"mesh.pp=2"}},
      {"dp_tp", 4, {"mesh.tp=2"}},
      {"fsdp_tp", 4, {"parallel.data=zero3", "mesh.tp=2"}},
      {"fsdp_tp_recompute", 4, {"parallel.data=zero2", "mesh.tp=2", "compute.recompute=true"}},
      {"dp_pp", 4, {"mesh.pp=2", "pipeline.schedule=1f1b"}},
      {"hsdp_pp", 8, {kGroups, kTwo, kInTwo, "mesh.pp=2"}},
      {"zero1_pp_tp",
       8,
       {"parallel.data=zero1", "mesh.pp=2", "mesh.tp=2", "parallel.sequence=true"}},
      {"dp_pp_tp_looped",
       8,
       {"mesh.pp=2", "mesh.tp=2", "pipeline.schedule=interleaved", "pipeline.virtual_stages=2"}},
      {"pp_tp_zero_bubble",
       4,
       {"mesh.pp=2", "mesh.tp=2", "pipeline.schedule=zbv", "parallel.sequence=true"}},
  };
}

const Dataset& tokens() {
  static const Dataset dataset = open_dataset({}, 16, plan::kAuto).or_throw();
  return dataset;
}

void set(plan::Config& config, std::string_view setting) {
  const size_t equals = setting.find('=');
  const plan::Key* key = plan::find_key(setting.substr(0, equals));
  ASSERT_NE(key, nullptr) << setting;
  key->set(config, plan::parse_value(*key, setting.substr(equals + 1)).or_throw());
}

plan::PlanInputs one_process() {
  plan::PlanInputs inputs = float64_job(tokens());
  plan::Config& config = inputs.config;
  config.run.ranks = 1;
  config.model.heads = 4;
  config.model.width = 32;
  config.model.block = 16;
  config.train.steps = 3;
  config.train.global_batch = 8;
  return inputs;
}

struct Plans {
  plan::Plan alone, ranks;
};

Plans plans_of(const MeshJob& job, plan::PlanInputs inputs) {
  Plans plans;
  plans.alone = plan::make_plan(inputs).or_throw();
  inputs.config.run.ranks = job.ranks;
  for (const std::string& setting : job.settings) set(inputs.config, setting);
  inputs.model = count_facts(inputs.config, Workload{tokens()});
  plans.ranks = plan::make_plan(inputs).or_throw();
  return plans;
}

class Meshes : public testing::TestWithParam<MeshJob> {};

TEST_P(Meshes, TrainAsOneProcessDoesInFloat64) {
  plan::PlanInputs inputs = one_process();
  update_by_descent(inputs.config.train);
  const Plans plans = plans_of(GetParam(), inputs);
  const Tampering descent{.before_update = [](Job& one) { descend(one); }};
  const JobRun alone = run_job(plans.alone, tokens(), descent)[0];
  expect_trained_alike(run_job(plans.ranks, tokens(), descent), alone, kSgdDifference);
}

TEST_P(Meshes, HaveTheBitsOfOneProcessInStable) {
  plan::PlanInputs inputs = one_process();
  plan::Config& config = inputs.config;
  config.train.bits = plan::Bits::kStable;
  config.train.cuts = {4, 4};
  config.compute.dtype = plan::Precision::kFloat32;
  inputs.kernels = {plan::Gemm::kMkl, plan::Attention::kMath, plan::Precision::kFloat32};
  const Plans plans = plans_of(GetParam(), inputs);
  const JobRun alone = run_job(plans.alone, tokens())[0];
  const std::vector<JobRun> runs = run_job(plans.ranks, tokens());
  expect_trained_alike(runs, alone, 0);
  int64_t wire_bytes = 0;
  for (const JobRun& run : runs) wire_bytes += run.wire_bytes;
  EXPECT_EQ(runs[0].collectives, plans.ranks.predicted.collectives_per_step);
  EXPECT_EQ(wire_bytes, plans.ranks.predicted.wire_bytes_per_step);
}

std::string name_of_case(const testing::TestParamInfo<MeshJob>& info) { return info.param.name; }

// ./dev check meshes
INSTANTIATE_TEST_SUITE_P(DISABLED_All, Meshes, testing::ValuesIn(meshes()), name_of_case);

}  // namespace
}  // namespace hanji::train
