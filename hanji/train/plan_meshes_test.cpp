#include "hanji/train/plan_meshes.h"

#include <fmt/format.h>
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

/// Loads a small Evoformer on 2 ranks.
plan::LoadedConfig small_pairs(const std::optional<plan::MeshChoice>& choice) {
  plan::ConfigSources sources;
  for (const char* set : {"model.preset=evoformer-tiny", "run.ranks=2", "model.width=8",
                          "data.residues=8", "data.sequences=4", "train.global_batch=4"}) {
    sources.overrides.push_back({set});
  }
  if (!choice) return plan::load_config(sources);
  sources.mesh = to_string(choice->mesh);
  for (const std::string& set : assignments_of(*choice)) sources.overrides.push_back({set});
  return plan::load_config(sources);
}

TEST(PlanMeshes, OfPairsHaveAxialAndSayOnceWhyNotTheOthers) {
  std::vector<std::string> flags;
  const auto table =
      plan_meshes(small_pairs, [&](const std::string& one) { flags.push_back(one); }).or_throw();
  EXPECT_THAT(flags, testing::IsSupersetOf({"--mesh dp=2", "--mesh pp=2", "--mesh axial=2",
                                            "--mesh axial=2 --set parallel.data=zero3"}));
  EXPECT_THAT(flags,
              testing::Each(testing::Not(testing::AnyOf(HasSubstr("tp="), HasSubstr("cp=")))));
  EXPECT_EQ(table.fitting.size(), flags.size()) << describe(table);
  EXPECT_EQ(table.not_tried, "cp, tp: model.preset = evoformer-tiny is not cut by them");
  EXPECT_THAT(describe(table), HasSubstr("not tried  " + table.not_tried + "\n"));
  const auto seconds_of = [&](const std::string& mesh) {
    const auto found = std::ranges::find(table.fitting, mesh, plan::flags_of);
    return found == table.fitting.end() ? 0 : found->seconds;
  };
  // Two stages of equal blocks: at best as fast as two data coordinates, by operations that were timed.
  EXPECT_GT(seconds_of("--mesh pp=2"), 0.5 * seconds_of("--mesh dp=2"));
}

// A sample a step serves no second coordinate, and one coordinate of four ranks.
TEST(PlanMeshes, LeavesToEachMeshWhatAnotherMends) {
  const auto [table, flags] = planned(Nano({"train.global_batch=1", "model.heads=4"}));
  std::vector<std::string> fitting;
  for (const plan::MeshChoice& one : table.fitting) {
    EXPECT_EQ(one.mesh.dp * one.mesh.fsdp, 1) << flags_of(one);
    fitting.push_back(flags_of(one));
  }
  EXPECT_THAT(fitting, testing::IsSupersetOf({"--mesh tp=4", "--mesh pp=2,tp=2", "--mesh pp=4"}));
  const std::string why =
      "--mesh dp=4, --mesh fsdp=4 --set parallel.data=zero1, ...: train.global_batch 1 gives 1 "
      "grain of 1, but run.ranks is 4 and every rank needs one";
  EXPECT_THAT(table.refused, testing::Contains(testing::Pair(why, 5)));
  int refused = 0;
  for (const auto& [reason, count] : table.refused) refused += count;
  EXPECT_EQ(refused + table.fitting.size(), flags.size());
  EXPECT_EQ(table.refused.size(), 2u) << "one line for each reason";

  const auto fits = [](const Sets& sets, const std::string& mesh) {
    const auto rows = planned(Nano(sets)).table.fitting;
    return std::ranges::any_of(rows,
                               [&](const auto& one) { return flags_of(one).starts_with(mesh); });
  };
  EXPECT_TRUE(fits({"parallel.sequence=true"}, "--mesh dp=2,tp=2"));
  EXPECT_TRUE(fits({"parallel.reshard=step"}, "--mesh fsdp=4 --set parallel.data=zero3"));
}

TEST(PlanMeshesErrors, AreOfTheJobThatNoMeshMends) {
  const auto message = [](const Sets& sets) {
    const auto table = plan_meshes(Nano(sets), [](const std::string& flags) { FAIL() << flags; });
    return std::string(table.status().message());
  };
  EXPECT_THAT(
      message({"mesh.tp=2", "train.warmup_steps=2000", "train.global_batch=1"}),
      testing::AllOf(HasSubstr("mesh.tp is set, but --meshes takes every degree; remove mesh.tp"),
                     HasSubstr("train.warmup_steps 2000 is above train.steps 1000"),
                     HasSubstr("2 mistakes")));
  EXPECT_THAT(message({"parallel.data=ddp", "parallel.reshard=step"}),
              HasSubstr("parallel.data = ddp shards no parameters"));
  EXPECT_THAT(message({"run.ranks=17", "train.global_batch=17"}), HasSubstr("set run.ranks = 16"));
}

// By formula: bytes within 5 % of those counted, as norms' gradients and what autograd saves beside
// are not in it; parameters exactly.
TEST(FactsOfACutGpt, AreThoseOfItsSizes) {
  plan::Config config = Nano()({}).config;
  config.model = plan::resolved(config.model);
  config.model.vocabulary = 256;
  config.mesh = {.pp = 1, .dp = 2, .fsdp = 1, .tp = 2};
  const Dataset dataset = open_dataset(config).or_throw();
  const auto expect_equal = [&](const std::string& cut) {
    const plan::ModelFacts named = plan::family_of(config.model).facts(config);
    const plan::ModelFacts counted = count_facts(config, Workload{dataset});
    ASSERT_EQ(named.parameters.size(), counted.parameters.size());
    for (size_t i = 0; i < named.parameters.size(); ++i) {
      EXPECT_EQ(named.parameters[i].elements, counted.parameters[i].elements) << i;
    }
    const auto kept = static_cast<double>(plan::activation_bytes(counted, 8));
    EXPECT_NEAR(static_cast<double>(plan::activation_bytes(named, 8)) / kept, 1, 0.05) << cut;
  };
  for (const bool sequence : {false, true}) {
    config.parallel.sequence = sequence;
    expect_equal(fmt::format("tp, sequence {}", sequence));
  }
  config.parallel.sequence = false;
  for (const auto way : {plan::ContextWay::kUlysses, plan::ContextWay::kRing}) {
    config.parallel.context = way;
    for (const int64_t tp : {1, 2}) {
      config.mesh = {
          .pp = 1, .dp = 1, .fsdp = 1, .cp = way == plan::ContextWay::kRing ? 4 : 2 / tp, .tp = tp};
      if (config.mesh.cp > 1) expect_equal(plan::to_string(config.mesh));
    }
  }
}

/// What the search by formula says of a mesh, and the plan of the job on it.
struct Choices {
  plan::MeshChoice by_formula, counted;
};

/// nano in float32 on 4 ranks.
Choices choices_on(const std::string& mesh, plan::ContextWay way, bool recompute) {
  // One head leaves two ranks of cp the ring alone, and dropout Ulysses.
  const int64_t heads = way == plan::ContextWay::kRing ? 1 : 4;
  plan::ConfigSources sources;
  sources.mesh = mesh;
  for (const std::string& set :
       {std::string("model.preset=nano"), std::string("run.ranks=4"),
        fmt::format("model.heads={}", heads), std::string("model.vocabulary=256"),
        std::string("train.global_batch=8"), std::string("train.micro_batch=2"),
        std::string("comm.algorithm.all_reduce=direct"),  // rates of the moment choose no other
        fmt::format("compute.recompute={}", recompute)}) {
    sources.overrides.push_back({set});
  }
  if (mesh.find("cp") != std::string::npos) {
    sources.overrides.push_back({fmt::format("parallel.context={}", plan::name_of(way))});
  }
  const plan::Plan plan = prepare(plan::load_config(sources).config).or_throw();
  plan::CapacityQuery query;
  query.device = plan::find_device("a100-80").or_throw();
  query.widths = plan::kFloat32Adam;
  plan::ModelConfig sizes;
  sizes.heads = heads;
  sizes.vocabulary = 256;
  query.model =
      plan::find_model("nano", facts_options(query.device, query.widths), sizes).or_throw();
  if (way == plan::ContextWay::kUlysses) query.model.gpt->dropout = 0.1;
  query.ranks.ranks = 4;
  query.global_batch = 8;
  query.micro_batch = 2;
  query.recompute = recompute;
  const plan::MeshTable table = choose_meshes(query, plan.config.mesh).or_throw();
  const plan::MeshChoice counted = choice_of(plan);
  const auto found = std::ranges::find_if(
      table.fitting, [&](const plan::MeshChoice& one) { return one.data == counted.data; });
  return {found == table.fitting.end() ? plan::MeshChoice() : *found, counted};
}

// Ranks that share memory count what they read there, others what they send: so gradients are compared with
// those of ranks with samples of their own. Losses, norms and flags beside them are below 2 %.
TEST(MeshesByFormula, MoveWhatCountedPlansMove) {
  for (const auto way : {plan::ContextWay::kUlysses, plan::ContextWay::kRing}) {
    for (const bool recompute : {false, true}) {
      const auto [formula, counted] = choices_on("dp=2,cp=2", way, recompute);
      const auto [formula_dp, counted_dp] = choices_on("dp=4", way, recompute);
      EXPECT_EQ(formula.layer_bytes, counted.layer_bytes) << plan::name_of(way) << recompute;
      EXPECT_EQ(formula.context, counted.context);
      EXPECT_EQ(formula.data_bytes, formula_dp.data_bytes);
      EXPECT_NEAR(counted.data_bytes / counted_dp.data_bytes, 1, 0.02);
    }
  }
}

}  // namespace
}  // namespace hanji::train
