#include "hanji/train/plan_meshes.h"

#include <gmock/gmock.h>

#include <numeric>

#include "hanji/plan/model_family.h"
#include "hanji/plan/plan.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/prepare.h"

namespace hanji::train {
namespace {

using testing::HasSubstr;

plan::LoadedConfig nano_on(const std::string& mesh) {
  plan::ConfigSources sources;
  sources.overrides = {{"model.preset=nano"}, {"run.ranks=4"}, {"model.heads=2"}};
  if (!mesh.empty()) sources.mesh = mesh;
  return plan::load_config(sources);
}

TEST(PlanMeshes, HasARowForEachMeshAsTrainPlansIt) {
  std::vector<std::string> planned;
  const auto table =
      plan_meshes(nano_on, [&](const std::string& mesh) { planned.push_back(mesh); }).or_throw();
  EXPECT_THAT(planned, testing::UnorderedElementsAre("dp=4", "dp=2,tp=2", "tp=4", "pp=2,dp=2",
                                                     "pp=2,tp=2", "pp=4"));
  ASSERT_EQ(table.fitting.size(), 5u);
  for (size_t i = 1; i < table.fitting.size(); ++i) {
    EXPECT_LE(table.fitting[i - 1].seconds, table.fitting[i].seconds);
  }
  for (const plan::MeshChoice& one : table.fitting) {
    const plan::Plan plan = prepare(nano_on(to_string(one.mesh)).config).or_throw();
    EXPECT_EQ(plan::total_bytes(one.rank), plan::total_bytes(plan.memory)) << to_string(one.mesh);
  }
  ASSERT_EQ(table.refused.size(), 1u);
  EXPECT_THAT(table.refused.begin()->first, HasSubstr("--mesh tp=4: "));
}

// By formula: bytes within 5 % of those counted, as norms' gradients and what autograd saves beside
// are not in it; parameters exactly.
TEST(FactsOfACutGpt, AreThoseOfItsSizes) {
  plan::Config config = nano_on("").config;
  config.model = plan::resolved(config.model);
  config.model.vocabulary = 256;
  config.mesh = {.pp = 1, .dp = 2, .fsdp = 1, .tp = 2};
  const Dataset dataset = open_dataset(config).or_throw();
  for (const bool sequence : {false, true}) {
    config.parallel.sequence = sequence;
    const plan::ModelFacts named = plan::family_of(config.model).facts(config);
    const plan::ModelFacts counted = count_facts(config, Workload{dataset});
    ASSERT_EQ(named.parameters.size(), counted.parameters.size());
    for (size_t i = 0; i < named.parameters.size(); ++i) {
      EXPECT_EQ(named.parameters[i].elements, counted.parameters[i].elements) << i;
    }
    const auto kept = static_cast<double>(plan::activation_bytes(counted, 8));
    EXPECT_NEAR(static_cast<double>(plan::activation_bytes(named, 8)) / kept, 1, 0.05) << sequence;
  }
}

}  // namespace
}  // namespace hanji::train
