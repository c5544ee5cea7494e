#include "hanji/plan/mesh_choices.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "hanji/layout/context.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

CapacityQuery gpt_on(const char* model, const char* device, int ranks, int64_t batch) {
  CapacityQuery query;
  query.device = find_device(device).or_throw();
  query.model = find_model(model, facts_options(query.device, query.widths)).or_throw();
  query.ranks.ranks = ranks;
  query.global_batch = batch;
  return query;
}

MeshChoice only(const CapacityQuery& query, const MeshConfig& mesh) {
  const MeshTable table = choose_meshes(query, mesh).or_throw();
  return table.fitting.empty() ? *table.smallest : table.fitting.front();
}

int64_t line(const MeshChoice& choice, const char* category) {
  for (const MemoryLine& one : choice.rank) {
    if (one.category == category) return one.bytes;
  }
  return -1;
}

/// A measured step of Narayanan et al., arXiv 2104.04473, table 1: A100-80, layers computed twice.
struct PublishedStep {
  int64_t layers, heads, width, tp, pp, ranks, batch, micro_batch;
  double seconds;
};

constexpr PublishedStep kPublished[] = {{24, 24, 2304, 1, 1, 32, 512, 16, 3.53},
                                        {30, 32, 3072, 2, 1, 64, 512, 16, 3.70},
                                        {36, 32, 4096, 4, 1, 128, 512, 16, 3.70},
                                        {40, 48, 6144, 8, 1, 256, 1024, 8, 9.40},
                                        {48, 64, 8192, 8, 2, 512, 1536, 4, 14.45},
                                        {60, 80, 10240, 8, 4, 1024, 1792, 2, 16.06},
                                        {80, 96, 12288, 8, 8, 1536, 2304, 2, 24.82},
                                        {96, 128, 16384, 8, 16, 1920, 2160, 1, 37.61},
                                        {105, 128, 20480, 8, 35, 2520, 2520, 1, 54.09},
                                        {128, 160, 25600, 8, 64, 3072, 3072, 1, 102.63}};

double predicted(const PublishedStep& step) {
  CapacityQuery query = gpt_on("gpt:1B", "a100-80", static_cast<int>(step.ranks), step.batch);
  query.model.gpt = ModelSpec{.layers = step.layers,
                              .heads = step.heads,
                              .width = step.width,
                              .block = 2048,
                              .vocabulary = 51200};
  query.micro_batch = step.micro_batch;
  query.recompute = true;
  return only(query, {.pp = step.pp, .dp = step.ranks / step.pp / step.tp, .tp = step.tp}).seconds;
}

TEST(MeshTables, MarkTheRowsThatABusyMachineTimed) {
  MeshTable table;
  table.fitting = {{.mesh = {.dp = 2, .fsdp = 1}, .seconds = 1, .load = 0.02},
                   {.mesh = {.pp = 2, .dp = 1, .fsdp = 1}, .seconds = 1.9, .load = 0.43}};
  const std::string text = describe(table);
  EXPECT_THAT(text, HasSubstr("        1   --mesh dp=2\n"));
  EXPECT_THAT(text, HasSubstr("      1.9*  --mesh pp=2\n"));
  EXPECT_THAT(text, HasSubstr("other processes used up to 43 % of the CPUs"));
  EXPECT_THAT(to_json(table), HasSubstr("\"load\": 0.43"));
  table.fitting.pop_back();
  EXPECT_THAT(describe(table), testing::Not(HasSubstr("*")));
}

TEST(AllMeshes, HaveTheAxesThatCutTheModelAndNoOthers) {
  const auto names = [](std::span<const std::string_view> axes) {
    std::vector<std::string> found;
    for (const MeshConfig& one : all_meshes(4, axes)) found.push_back(to_string(one));
    return found;
  };
  constexpr std::array<std::string_view, 1> kAxial = {"axial"};
  constexpr std::array<std::string_view, 2> kGpt = {"tp", "cp"};
  EXPECT_THAT(names({}), testing::ElementsAre("dp=4", "pp=2,dp=2", "pp=4"));
  EXPECT_THAT(names(kAxial),
              testing::UnorderedElementsAre("dp=4", "pp=2,dp=2", "pp=4", "dp=2,axial=2",
                                            "pp=2,axial=2", "axial=4"));
  EXPECT_THAT(names(kGpt), testing::AllOf(testing::Contains("dp=2,cp=2"),
                                          testing::Contains("cp=2,tp=2"), testing::SizeIs(10)));
}

// One share of the products' rate serves all rows; Calculon's error on them is 10.3 % and at most 17.8 %.
TEST(ChooseMeshes, PredictsPublishedStepsOfThousandsOfDevices) {
  double sum = 0;
  for (const PublishedStep& step : kPublished) {
    const double error = std::abs(predicted(step) / step.seconds - 1);
    EXPECT_LT(error, 0.3) << step.width << " wide";
    sum += error;
  }
  EXPECT_LT(sum / std::size(kPublished), 0.11);
}

TEST(ChooseMeshes, FindsThat175BFitsOn1024DevicesBy8x16x8) {
  const MeshTable table = choose_meshes(gpt_on("gpt:175B", "a100-80", 1024, 1536)).or_throw();
  const auto found = std::ranges::find_if(table.fitting, [](const MeshChoice& one) {
    return to_string(one.mesh) == "pp=16,dp=8,tp=8";
  });
  ASSERT_NE(found, table.fitting.end());
  EXPECT_LT(found->seconds, 1.1 * table.fitting.front().seconds);
  for (const MeshChoice& one : table.fitting) {
    EXPECT_LE(total_bytes(one.rank), 80'000'000'000) << to_string(one.mesh);
    EXPECT_EQ(one.mesh.pp * one.mesh.dp * one.mesh.fsdp * one.mesh.cp * one.mesh.tp, 1024);
  }
}

TEST(ChooseMeshes, SaysWhatIsMissing) {
  const MeshTable table = choose_meshes(gpt_on("gpt:175B", "a100-80", 1024, 1536)).or_throw();
  EXPECT_EQ(table.refused.at("tp above the 96 heads"), 20);
  ASSERT_TRUE(table.smallest);
  EXPECT_GT(total_bytes(table.smallest->rank), 80'000'000'000);
  EXPECT_THAT(describe(table), AllOf(HasSubstr("too large"), HasSubstr("pp above the 98 layers")));
}

TEST(ChooseMeshes, CutsMemoryByEveryAxis) {
  const CapacityQuery query = gpt_on("gpt:7B", "a100-80", 16, 64);
  const MeshChoice dp = only(query, {.dp = 16, .fsdp = 1}), tp = only(query, {.dp = 2, .tp = 8}),
                   pp = only(query, {.pp = 8, .dp = 2}), fsdp = only(query, {.dp = 1, .fsdp = 16});
  EXPECT_NEAR(static_cast<double>(line(dp, "optimizer")) / line(tp, "optimizer"), 8, 0.1);
  EXPECT_NEAR(static_cast<double>(line(dp, "optimizer")) / line(pp, "optimizer"), 8, 1.5);
  EXPECT_NEAR(static_cast<double>(line(dp, "optimizer")) / line(fsdp, "optimizer"), 16, 0.1);
  EXPECT_EQ(line(dp, "parameters"), line(fsdp, "parameters"));  // zero1 is the fastest that fits
}

TEST(ChooseMeshes, CountsTheBytesOfEachAxis) {
  const CapacityQuery query = gpt_on("gpt:7B", "a100-80", 16, 64);
  const ModelSpec& m = *query.model.gpt;
  const double stream = 2.0 * static_cast<double>(m.block * m.width);
  const MeshChoice tp = only(query, {.dp = 2, .tp = 8});
  const auto calls = static_cast<double>(4 * m.layers + 2);
  EXPECT_DOUBLE_EQ(tp.layer_bytes, 32 * calls * 2 * 7 / 8 * stream);
  EXPECT_EQ(tp.stage_bytes, 0);
  const MeshChoice dp = only(query, {.dp = 16, .fsdp = 1});
  EXPECT_DOUBLE_EQ(dp.data_bytes, 2.0 * 2 * 15 / 16 * static_cast<double>(m.num_parameters()));
  const MeshChoice pp = only(query, {.pp = 8, .dp = 2});
  EXPECT_DOUBLE_EQ(pp.stage_bytes, 2.0 * 32 * 2 * stream);
  EXPECT_NEAR(pp.bubble, 7.0 / 32, 0.05);
}

/// The bytes of a list are those of layout::context_calls(), per layer, rank and micro-batch.
TEST(ChooseMeshes, CountsTheBytesOfBothWaysOfCp) {
  for (const bool recompute : {false, true}) {
    CapacityQuery query = gpt_on("gpt:7B", "a100-80", 16, 64);
    query.recompute = recompute;
    const ModelSpec& m = *query.model.gpt;
    // More ranks than heads leave the ring alone.
    for (const int64_t heads : {m.heads, int64_t{2}}) {
      query.model.gpt->heads = heads;
      const MeshChoice cp = only(query, {.dp = 4, .cp = 4});
      ASSERT_EQ(cp.context, heads == 2 ? ContextWay::kRing : ContextWay::kUlysses);
      const layout::ContextAttention attention{.tokens = m.block,
                                               .heads = heads,
                                               .kv_heads = heads,
                                               .width = m.width / heads,
                                               .ranks = 4};
      int64_t bytes = 0;
      for (const auto& call : layout::context_calls(attention, cp.context)) {
        bytes += call.sent() * (call.is_sum ? 4 : 2) * (cp.recompute && !call.is_backward ? 2 : 1);
      }
      EXPECT_DOUBLE_EQ(cp.layer_bytes, 16.0 * static_cast<double>(m.layers * bytes) / 4);
      // All 16 ranks have terms of one gradient.
      EXPECT_DOUBLE_EQ(cp.data_bytes, 2.0 * 2 * 15 / 16 * static_cast<double>(m.num_parameters()));
    }
  }
}

TEST(ChooseMeshes, DividesActivationsByCpAndSharesStatesOverFsdpAndCp) {
  CapacityQuery query = gpt_on("gpt:7B", "a100-80", 16, 64);
  query.recompute = true;
  const MeshChoice dp = only(query, {.dp = 1, .fsdp = 16}),
                   cp = only(query, {.dp = 1, .fsdp = 4, .cp = 4});
  EXPECT_EQ(line(dp, "optimizer"), line(cp, "optimizer"));
  EXPECT_EQ(line(dp, "parameters"), line(cp, "parameters"));
  // All of them but inputs and targets, which every rank reads whole.
  EXPECT_NEAR(static_cast<double>(line(dp, "activations")) / line(cp, "activations"), 4, 0.1);
  EXPECT_THAT(flags_of(cp), HasSubstr("--mesh fsdp=4,cp=4 --set parallel.data=zero"));
  EXPECT_THAT(flags_of(cp), HasSubstr(" --set parallel.context=ulysses"));
}

TEST(ChooseMeshes, TakesTheRingWhereHeadsAreFewAndRefusesWhatNeitherWayCanCut) {
  CapacityQuery query = gpt_on("gpt:7B", "a100-80", 64, 64);
  query.model.gpt->kv_heads = 4;
  EXPECT_EQ(only(query, {.dp = 1, .cp = 64}).context, ContextWay::kRing);
  query.model.gpt->dropout = 0.1;
  EXPECT_THAT(choose_meshes(query, MeshConfig{.dp = 1, .cp = 64}).status().message(),
              HasSubstr("cp above the heads of a rank; take 32"));
  query.model.gpt->dropout = 0;
  query.model.gpt->kv_heads = 12;
  query.model.gpt->heads = 36;
  EXPECT_THAT(choose_meshes(query, MeshConfig{.dp = 1, .cp = 8, .tp = 8}).status().message(),
              HasSubstr("tp that does not divide the 12 heads, beside cp; take 4"));
  query.model.gpt->block = 2052;
  EXPECT_THAT(choose_meshes(query, MeshConfig{.dp = 1, .cp = 16, .tp = 4}).status().message(),
              HasSubstr("cp that does not divide 1026 tokens, beside tp; take 2"));
}

TEST(ChooseMeshes, StagesThatGatherPayBytesForTheMemoryOfParameters) {
  CapacityQuery query = gpt_on("gpt:7B", "a100-80", 16, 64);
  const MeshTable table = choose_meshes(query, MeshConfig{.pp = 2, .dp = 1, .fsdp = 8}).or_throw();
  ASSERT_EQ(table.fitting.size(), 2u);
  const MeshChoice &zero1 = table.fitting[0], &zero3 = table.fitting[1];
  ASSERT_EQ(flags_of(zero1), "--mesh pp=2,fsdp=8 --set parallel.data=zero1");
  ASSERT_EQ(flags_of(zero3),
            "--mesh pp=2,fsdp=8 --set parallel.data=zero3 --set parallel.share_memory=false --set "
            "parallel.reshard=micro_batch");
  // Of parameters of 2 bytes an eighth and two layers; gradients whole in both, an eighth beside them.
  const int64_t all = line(zero1, "parameters");
  EXPECT_NEAR(static_cast<double>(line(zero3, "parameters")) / all, 1.0 / 8, 0.001);
  EXPECT_NEAR(static_cast<double>(line(zero3, "buckets")) / all, 1, 0.001);
  EXPECT_LT(line(zero3, "unsharded units"), all / 4);
  EXPECT_LT(total_bytes(zero3.rank), total_bytes(zero1.rank));
  // Each of 8 micro-batches gathers them twice.
  EXPECT_NEAR(zero3.data_bytes / zero1.data_bytes, (1 + 2 * 8) / 2.0, 0.01);
}

TEST(ChooseMeshes, IsNeverSlowerOnAFasterNetworkNorSmallerInAMoreGenerousDevice) {
  CapacityQuery query = gpt_on("gpt:7B", "a100-40", 32, 64);
  const MeshTable before = choose_meshes(query).or_throw();
  query.network_rate *= 2;
  const MeshTable faster = choose_meshes(query).or_throw();
  EXPECT_LE(faster.fitting.front().seconds, before.fitting.front().seconds);
  query.device.memory_bytes *= 2;
  EXPECT_GE(choose_meshes(query).or_throw().fitting.size(), before.fitting.size());
}

TEST(ChooseMeshes, RefusesAMeshWithAllItsMistakesAndTheNearestThatServe) {
  const CapacityQuery query = gpt_on("gpt:175B", "a100-80", 1024, 1536);
  const Status status = choose_meshes(query, MeshConfig{.pp = 7, .tp = 200}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("pp 7 does not divide 1024 ranks; take 4 or 8"),
                    HasSubstr("tp 200 does not divide"), HasSubstr("tp above the 96 heads")));
  const auto message = [&](const MeshConfig& mesh) {
    return choose_meshes(query, mesh).status().message();
  };
  EXPECT_THAT(message({.pp = 16, .cp = 16, .tp = 8}),
              HasSubstr("make 2048, which does not divide 1024 ranks; take pp 8"));
  EXPECT_THAT(message({.pp = 16, .dp = 4, .tp = 8}),
              HasSubstr("make 512 ranks of 1024; take dp 8"));
  EXPECT_THAT(message({.pp = 16, .tp = 8, .axial = 2}), HasSubstr("a GPT has none"));
  const int64_t most = INT32_MAX;
  EXPECT_THAT(
      message({.pp = most, .dp = most, .fsdp = most, .cp = most, .tp = most, .axial = most}),
      AllOf(HasSubstr("cp 2147483647 does not divide"), HasSubstr("tp above the 96")));
}

TEST(ChooseMeshes, RefusesDevicesAndModelsOfWhichItKnowsTooLittle) {
  CapacityQuery query = gpt_on("gpt:7B", "24GB", 4, 4);
  query.model.gpt.reset();
  EXPECT_THAT(choose_meshes(query).status().message(),
              AllOf(HasSubstr("the rates of 24GB"), HasSubstr("how axes cut a GPT")));
}

TEST(ChoiceOfAPlan, SharesItsBytesAmongTheAxes) {
  PlanInputs inputs = test_plan::small_gpt({256, 10000, 1000});
  inputs.config.run.ranks = 4;
  inputs.config.mesh.tp = 2;
  inputs.model = family_of(inputs.config.model).facts(inputs.config);
  for (LayerFacts& layer : inputs.model->layers) layer.calls = {{.counts = {{0, 100}}}};
  const Plan plan = test_plan::made(inputs);
  const MeshChoice choice = choice_of(plan);
  EXPECT_EQ(to_string(choice.mesh), "dp=2,tp=2");
  EXPECT_DOUBLE_EQ(choice.data_bytes + choice.stage_bytes + choice.layer_bytes,
                   static_cast<double>(plan.predicted.wire_bytes_per_step) / 4);
  EXPECT_GT(choice.layer_bytes, 0);
  EXPECT_GT(choice.data_bytes, 0);
  EXPECT_EQ(choice.seconds, plan.predicted.step_seconds);
}

}  // namespace
}  // namespace hanji::plan
