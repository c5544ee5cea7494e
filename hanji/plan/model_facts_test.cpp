#include "hanji/plan/model_facts.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/plan/memory.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/model_spec.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

Config gpt(std::string preset) {
  Config config;
  config.model.preset = std::move(preset);
  config.model.vocabulary = 65;
  config.model = resolved(config.model);
  return config;
}

TEST(GptFacts, AddUpToTheClosedFormulas) {
  for (const Precision precision :
       {Precision::kFloat32, Precision::kBFloat16, Precision::kFloat64}) {
    for (const bool recompute : {false, true}) {
      for (const double dropout : {0.0, 0.1}) {
        Config config = gpt("char");
        config.compute.dtype = precision;
        config.compute.recompute = recompute;
        config.model.dropout = dropout;
        config.model.kv_heads = 2;
        const ModelFacts facts = family_of(config.model).facts(config);
        const ModelSpec spec = resolve_model(config.model);
        for (const int64_t samples : {1, 3, 16}) {
          const ActivationOptions options{samples, precision, Device::kCpu, recompute};
          EXPECT_EQ(activation_bytes(facts, samples), test_plan::activation_bytes(spec, options));
          EXPECT_EQ(workspace_bytes(facts, samples), test_plan::workspace_bytes(spec, options));
        }
      }
    }
  }
}

TEST(GptFacts, FlopsCountEveryWeightSixTimesAndTheWholeSquareOfAttention) {
  Config config;
  config.model = {.layers = 3, .heads = 4, .width = 16, .block = 8, .vocabulary = 10};
  ModelFacts facts = family_of(config.model).facts(config);
  EXPECT_DOUBLE_EQ(facts.product_flops_per_sample(), 8 * 6.0 * (12 * 3 * 16 * 16 + 10 * 16));
  EXPECT_DOUBLE_EQ(facts.attention_flops_per_sample(), 8 * 12.0 * 3 * 8 * 16);
  config.model.kv_heads = 1;  // qkv 16 + 2 * 4 wide; projection, up and down
  facts = family_of(config.model).facts(config);
  EXPECT_DOUBLE_EQ(facts.product_flops_per_sample(),
                   8 * 6.0 * (3 * 16 * (24 + 16 + 64 + 64) + 10 * 16));
}

TEST(GptFacts, CountEveryParameterOnce) {
  for (const bool tied : {true, false}) {
    Config config = gpt("nano");
    config.model.tied = tied;
    config.model.kv_heads = 1;
    const ModelFacts facts = family_of(config.model).facts(config);
    const ModelSpec spec = resolve_model(config.model);
    EXPECT_EQ(facts.parameter_sizes(), spec.parameter_sizes());
    EXPECT_EQ(facts.num_parameters(), spec.num_parameters());
    EXPECT_EQ(facts.parameters.back().layer, 3);
    EXPECT_EQ(facts.targets_per_sample, 32);
  }
}

TEST(ModelFacts, TheWalkGivesUpWhatLaterLayersHaveKept) {
  ModelFacts facts;
  facts.layers = {{.name = "first", .kept = {0, 100}, .backward = {0, 90}},
                  {.name = "last", .kept = {10, 50}, .backward = {0, 20}}};
  EXPECT_EQ(activation_bytes(facts, 2), 310);
  EXPECT_EQ(workspace_bytes(facts, 2), 2 * 190 - 310);
  facts.layers[0].backward = {};
  EXPECT_EQ(workspace_bytes(facts, 2), 40);
}

TEST(ModelFacts, KernelsAreMeasuredOnItsAttentionOrItsLargestProduct) {
  const Config config = gpt("nano");
  const KernelShapes of_gpt = kernel_shapes(family_of(config.model).facts(config));
  EXPECT_EQ(of_gpt.block, 32);
  EXPECT_EQ(of_gpt.width, 32);
  EXPECT_EQ(of_gpt.heads, 2);
  ModelFacts images;
  images.layers = {{.name = "small", .products = {{1, 10, 10}}},
                   {.name = "large", .products = {{1024, 64, 576}}}};
  EXPECT_EQ(kernel_shapes(images).width, 64);
  EXPECT_EQ(kernel_shapes(images).block, 64);
  EXPECT_EQ(kernel_shapes(ModelFacts{}).heads, 1);
}

/// A model whose layers somebody has counted.
PlanInputs counted_images() {
  PlanInputs inputs = test_plan::two_cores();
  const std::vector<Override> preset = {{"model.preset=resnet-tiny"}};
  inputs.config = parse_config("", "run.toml", preset).config;
  inputs.data = {10, 45000, 5000};
  inputs.model =
      ModelFacts{.layers = {{.name = "layer 0",
                             .products = {{1024, 16, 27, 2}},
                             .elementwise_bytes = 4e5,
                             .kept = {0, 131072},
                             .flow = {0, 65536},
                             .backward = {4096, 70000},
                             .copied = {{8, 16}}},
                            {.name = "layer 1", .products = {{1, 10, 16, 3}}, .kept = {8, 104}}},
                 .parameters = {{432, 0}, {16, 0}, {16, 0}, {160, 1}, {10, 1}},
                 .sample_bytes = 12296,
                 .num_statistics = 32,
                 .buffer_bytes = 128};
  return inputs;
}

TEST(CountedFacts, DecideMemoryAndTimeAndStayInThePlan) {
  const Plan plan = test_plan::made(counted_images());
  EXPECT_EQ(plan.ranks, 2);
  EXPECT_EQ(plan.config.model.width, 16);
  EXPECT_EQ(plan.config.train.grain, 16);
  const auto bytes_of = [&](std::string_view category) {
    const auto found = std::ranges::find(plan.memory, category, &MemoryLine::category);
    return found == plan.memory.end() ? -1 : found->bytes;
  };
  EXPECT_EQ(bytes_of("activations"), 32 * (131072 + 104) + 8);
  EXPECT_EQ(bytes_of("data"), 32 * 12296);
  EXPECT_EQ(bytes_of("buffers"), 128);
  EXPECT_GT(plan.predicted.compute_seconds, 0);
  const auto again = plan_from_json(to_json(plan));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->model, plan.model);
  EXPECT_EQ(to_json(*again), to_json(plan));
  EXPECT_THAT(describe(plan), testing::HasSubstr("64 samples = 64 images a step"));
  EXPECT_THAT(describe(plan),
              testing::HasSubstr("generated images of 32 x 32: 45.0 k to train on"));
}

TEST(CountedFacts, OfOlderPlansHaveMembersThatAreIgnored) {
  const ModelFacts facts = *counted_images().model;
  base::Json json = base::Json::parse(facts_to_json(facts));
  for (base::Json& layer : json["layers"]) layer["operations"] = layer["tensor_bytes"] = 9;
  EXPECT_EQ(facts_from_json(json.dump()).or_throw(), facts);
}

TEST(CountedFacts, KeepTheSizesOfPartsAndBlocks) {
  ModelFacts facts = *counted_images().model;
  facts.parameters[0].parts = {300, 132};
  facts.parameters[0].blocks = {132, 168, 132};
  facts.parameters[1].blocks = {4, 4};
  EXPECT_EQ(facts_from_json(facts_to_json(facts)).or_throw(), facts);
}

TEST(CountedFacts, AreAskedForByNameWhereNobodyHasCounted) {
  PlanInputs inputs = counted_images();
  inputs.model.reset();
  EXPECT_THAT(make_plan(inputs).status().message(), testing::HasSubstr("nobody has counted"));
}

TEST(CountedFacts, SpoiltOnesAreCorrupt) {
  const std::string good = facts_to_json(*counted_images().model);
  EXPECT_EQ(facts_from_json(good).or_throw(), *counted_images().model);
  for (const auto& [part, other] : {std::pair("[432,0]", "[0,0]"), std::pair("[432,0]", "[432]"),
                                    std::pair("[432,0]", "[432,0,[\"9\"]]"),
                                    std::pair("\"buffer_bytes\":128", "\"buffer_bytes\":\"9\""),
                                    std::pair("\"name\":\"layer 1\"", "\"named\":\"layer 1\"")}) {
    std::string bad = good;
    const size_t place = bad.find(part);
    ASSERT_NE(place, bad.npos) << part << " in " << bad;
    bad.replace(place, std::string_view(part).size(), other);
    EXPECT_EQ(facts_from_json(bad).status().code(), Code::kCorrupt) << other;
  }
}

TEST(ModelFamilies, DefaultsGiveWayToWhatIsSet) {
  const std::vector<Override> more = {{"model.preset=resnet18"}, {"train.grain=32"}};
  const LoadedConfig loaded = parse_config("", "run.toml", more);
  EXPECT_THAT(loaded.mistakes, testing::IsEmpty());
  EXPECT_EQ(loaded.config.train.grain, 32);
  EXPECT_EQ(loaded.config.train.global_batch, 64);
  EXPECT_EQ(loaded.config.data.images, Images::kGenerated);
  const std::string text = print_config(loaded);
  EXPECT_THAT(text,
              testing::HasSubstr("images = \"generated\"                      # preset resnet18"));
  EXPECT_THAT(text, testing::HasSubstr("width = 64"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("heads")));
  EXPECT_EQ(parse_config(text, "again.toml").config.data.images, Images::kGenerated);
}

TEST(ModelFamilies, ADefaultOfSomePresetsIsNotThatOfTheOthers) {
  const auto warmup = [](const std::string& preset) {
    return parse_config("[model]\npreset = \"" + preset + "\"\n", "f").config.train.warmup_steps;
  };
  EXPECT_EQ(warmup("evoformer-tiny"), 0);
  EXPECT_EQ(warmup("evoformer-demo"), 0);
  EXPECT_EQ(warmup("evoformer-af2"), kAuto);
  EXPECT_EQ(warmup("pairmixer"), kAuto);
}

DataConfig data_of(const std::string& preset, bool as_published, std::vector<Override> set = {}) {
  set.insert(set.begin(), {"model.preset=" + preset});
  const LoadedConfig loaded = load_config({.overrides = set, .as_published = as_published});
  EXPECT_TRUE(loaded.mistakes.empty()) << to_status(loaded.mistakes).message();
  return loaded.config.data;
}

TEST(ModelFamilies, PublishedDataIsThatOfANamedModelAndNotOfAJob) {
  for (const char* preset : {"resnet18", "resnet50"}) {
    const DataConfig published = data_of(preset, true), job = data_of(preset, false);
    EXPECT_EQ(std::pair(published.image_size, published.classes), std::pair(224L, 1000L)) << preset;
    EXPECT_EQ(std::pair(job.image_size, job.classes), std::pair(32L, 10L)) << preset;
    EXPECT_EQ(data_of(preset, true, {{"data.image_size=64"}}).image_size, 64);
  }
  EXPECT_EQ(data_of("evoformer-af2", true).residues, 256);
  EXPECT_EQ(data_of("evoformer-af2", true).sequences, 128);
  for (const char* preset : {"pairformer", "pairmixer"}) {
    EXPECT_EQ(data_of(preset, true).residues, 384) << preset;
  }
  for (const char* preset : {"nano", "gpt2", "resnet-tiny", "evoformer-tiny", "evoformer-demo"}) {
    const DataConfig published = data_of(preset, true), job = data_of(preset, false);
    EXPECT_EQ(published.image_size, job.image_size) << preset;
    EXPECT_EQ(published.residues, job.residues) << preset;
  }
}

TEST(ModelFamilies, EveryPresetBelongsToOneAndResolvesToNothingOpen) {
  for (const ModelFamily& family : model_families()) {
    for (const std::string_view preset : family.presets) {
      EXPECT_EQ(family_of(preset).name, family.name);
      EXPECT_THAT(preset_names(), testing::Contains(preset));
      ModelConfig model;
      model.preset = preset;
      EXPECT_FALSE(family.describe(resolved(model), 10).empty());
      Config config;
      config.model = resolved(model);
      EXPECT_TRUE(family.check == nullptr || family.check(config).empty());
    }
  }
}

}  // namespace
}  // namespace hanji::plan
