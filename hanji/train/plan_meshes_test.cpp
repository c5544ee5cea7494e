#include "hanji/train/plan_meshes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "hanji/plan/model_family.h"
#include "hanji/plan/plan.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/prepare.h"

namespace hanji::train {
namespace {

using testing::HasSubstr;

using Sets = std::vector<std::string>;

/// Loads nano on 4 ranks with more assignments, as `hanji plan --meshes` does.
class Nano {
 public:
  explicit Nano(Sets sets = {}) : sets_(std::move(sets)) {}

  plan::LoadedConfig operator()(const std::optional<plan::MeshChoice>& choice) const {
    plan::ConfigSources sources;
    for (const char* set : {"model.preset=nano", "run.ranks=4", "model.heads=2"}) {
      sources.overrides.push_back({set});
    }
    for (const std::string& set : sets_) sources.overrides.push_back({set});
    if (!choice) return plan::load_config(sources);
    sources.mesh = to_string(choice->mesh);
    for (const std::string& set : assignments_of(*choice)) sources.overrides.push_back({set});
    return plan::load_config(sources);
  }

 private:
  Sets sets_;
};

struct Planned {
  plan::MeshTable table;
  std::vector<std::string> flags;
};

Planned planned(const Nano& nano) {
  Planned found;
  const auto tell = [&](const std::string& flags) { found.flags.push_back(flags); };
  found.table = plan_meshes(nano, tell).or_throw();
  return found;
}

TEST(PlanMeshes, HasARowForEachMeshAndStrategyAsTrainPlansIt) {
  const auto [table, flags] = planned(Nano());
  for (const char* of_ddp : {"dp=4", "dp=2,tp=2", "tp=4", "pp=2,dp=2", "pp=2,tp=2", "pp=4"}) {
    EXPECT_THAT(flags, testing::Contains(std::string("--mesh ") + of_ddp));
  }
  for (const char* data : {"zero1", "zero2", "zero3"}) {
    EXPECT_THAT(flags,
                testing::Contains(std::string("--mesh pp=2,fsdp=2 --set parallel.data=") + data));
  }
  EXPECT_THAT(flags, testing::Contains("--mesh dp=2,fsdp=2 --set parallel.data=hsdp"));
  for (const char* of_tokens :
       {"dp=2,cp=2", "cp=4", "cp=2,tp=2", "fsdp=2,cp=2 --set parallel.data=zero3",
        "cp=4 --set parallel.data=zero1"}) {
    EXPECT_THAT(flags, testing::Contains(std::string("--mesh ") + of_tokens));
  }
  EXPECT_EQ(flags.size(), 6u + 3 * 3 + 1 + 4 * 4);
  ASSERT_EQ(table.fitting.size(), flags.size() - 1);
  for (size_t i = 1; i < table.fitting.size(); ++i) {
    EXPECT_LE(table.fitting[i - 1].seconds, table.fitting[i].seconds);
  }
  for (const plan::MeshChoice& one : table.fitting) {
    EXPECT_EQ(one.context != plan::ContextWay::kAuto, one.mesh.cp > 1) << flags_of(one);
    if (one.mesh.pp != 2 && one.mesh.cp == 1) continue;
    const plan::Plan plan = prepare(Nano()(one).config).or_throw();
    EXPECT_EQ(plan::total_bytes(one.rank), plan::total_bytes(plan.memory)) << flags_of(one);
    EXPECT_THAT(describe(table), HasSubstr("  " + flags_of(one) + "\n"));
  }
  ASSERT_EQ(table.refused.size(), 1u);
  EXPECT_THAT(table.refused.begin()->first, HasSubstr("--mesh tp=4: "));
}

TEST(PlanMeshes, HasBothReshardsOfStagesThatGather) {
  const auto [table, flags] = planned(Nano({"parallel.share_memory=false", "parallel.data=zero3"}));
  const auto row = [&, &rows = table.fitting](const std::string& end) {
    const auto found = std::ranges::find_if(rows, [&](const plan::MeshChoice& one) {
      return flags_of(one).ends_with(end) && one.mesh.pp == 2 && one.mesh.fsdp == 2;
    });
    return found == rows.end() ? plan::MeshChoice() : *found;
  };
  const plan::MeshChoice step = row("parallel.reshard=step"), pass = row("reshard=micro_batch");
  EXPECT_GT(plan::total_bytes(step.rank), plan::total_bytes(pass.rank));
  EXPECT_GT(plan::total_bytes(pass.rank), 0);
  EXPECT_LT(step.data_bytes, pass.data_bytes);
  EXPECT_THAT(flags, testing::Each(HasSubstr("parallel.data=zero3")));
}

// By formula: bytes within 5 % of those counted, as norms' gradients and what autograd saves beside
// are not in it; parameters exactly.
TEST(FactsOfACutGpt, AreThoseOfItsSizes) {
  plan::Config config = Nano()({}).config;
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
