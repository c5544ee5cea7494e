#include "hanji/plan/resume.h"

#include <gmock/gmock.h>

#include "hanji/plan/schema.h"

namespace hanji::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// As a plan holds it: nothing is left to decide.
Config recorded() {
  Config config;
  config.run.ranks = 2;
  config.model = {
      .preset = "nano", .layers = 2, .heads = 2, .width = 32, .block = 16, .vocabulary = 60};
  config.train.steps = 20;
  config.train.warmup_steps = 2;
  config.train.global_batch = 12;
  config.train.micro_batch = 6;
  config.compute.gemm = Gemm::kOneDnn;
  config.compute.attention = Attention::kMath;
  config.compute.threads = 1;
  return config;
}

Result<ResumedConfig> resume_with(std::vector<std::string> assignments) {
  ConfigSources sources{.base = recorded(), .base_source = "checkpoint"};
  for (std::string& one : assignments) sources.overrides.push_back({std::move(one)});
  const LoadedConfig loaded = load_config(sources);
  EXPECT_TRUE(loaded.mistakes.empty()) << loaded.mistakes.front().to_string();
  return resume_config(recorded(), loaded);
}

TEST(ResumeConfig, WithoutOptionsIsWhatWasRecorded) {
  const auto resumed = resume_with({});
  ASSERT_TRUE(resumed.ok());
  EXPECT_TRUE(resumed->changes.empty());
  for (const Key& key : schema()) {
    EXPECT_EQ(key.get(resumed->config), key.get(recorded())) << key.name;
  }
}

TEST(ResumeConfig, TakesStepsAndWhatOnlySharesOutTheWork) {
  const auto resumed = resume_with({"train.steps=40", "checkpoint.keep=1", "comm.engine=gloo"});
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  EXPECT_EQ(resumed->config.train.steps, 40);
  EXPECT_EQ(resumed->config.comm.engine, Engine::kGloo);
  EXPECT_THAT(resumed->changes,
              ElementsAre(HasSubstr("train.steps 20 -> 40 (--set)"),
                          HasSubstr("checkpoint.keep 3 -> 1"), HasSubstr("comm.engine")));
}

TEST(ResumeConfig, OtherRanksDecideMicroBatchesAndThreadsAnew) {
  const auto resumed = resume_with({"run.ranks=3"});
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ(resumed->config.train.micro_batch, kAuto);
  EXPECT_EQ(resumed->config.compute.threads, kAuto);
  const auto set = resume_with({"run.ranks=3", "train.micro_batch=2", "compute.threads=1"});
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->config.train.micro_batch, 2);
  EXPECT_EQ(set->config.compute.threads, 1);
  EXPECT_EQ(resume_with({"run.ranks=2"})->config.train.micro_batch, 6);
}

TEST(ResumeConfig, GoesOnOnTheDeviceThatItBeganOn) {
  Config saved = recorded();
  saved.compute.gemm = Gemm::kMkl;
  saved.compute.attention = Attention::kFlash;
  ConfigSources sources{.base = saved, .base_source = "checkpoint"};
  sources.overrides.push_back({"compute.device=cuda"});
  const auto refused = resume_config(saved, load_config(sources));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("compute.device is \"cuda\" here"));
}

TEST(ResumeConfig, AnotherMeshDecidesAnewWhatRanksOfTheOldOneCutAndExchanged) {
  Config saved = recorded();
  saved.mesh.tp = 2;
  saved.parallel.sequence = true;
  saved.parallel.moves = Moves::kWeights;
  const auto resumed = [&](std::vector<Override> overrides) {
    ConfigSources sources{.base = resume_base(saved), .base_source = "checkpoint"};
    sources.overrides = std::move(overrides);
    const LoadedConfig loaded = load_config(sources);
    EXPECT_THAT(loaded.mistakes, testing::IsEmpty());
    return resume_config(saved, loaded)->config.parallel;
  };
  EXPECT_EQ(resumed({}).moves, Moves::kWeights);
  EXPECT_TRUE(resumed({}).sequence);
  const ParallelConfig alone = resumed({{"run.ranks=1"}});
  EXPECT_EQ(alone.moves, Moves::kAuto);
  EXPECT_FALSE(alone.sequence);
}

TEST(ResumeConfig, RefusesAllChangesOfTheJobAtOnceWithBothValues) {
  const auto resumed = resume_with({"model.preset=char", "train.seed=8", "train.grain=3",
                                    "model.vocabulary=99", "compute.dtype=bf16", "train.steps=9"});
  ASSERT_FALSE(resumed.ok());
  const std::string& message = resumed.status().message();
  EXPECT_THAT(message, HasSubstr("model.preset is \"char\" here and \"nano\" in the saved run"));
  EXPECT_THAT(message, HasSubstr("train.seed is 8 here and 1 in the saved run"));
  EXPECT_THAT(message, HasSubstr("train.grain is 3 here and 1"));
  EXPECT_THAT(message, HasSubstr("model.vocabulary is 99 here and 60"));
  EXPECT_THAT(message, HasSubstr("compute.dtype"));
  EXPECT_THAT(message, HasSubstr("5 mistakes"));
}

TEST(ResumeConfig, KeepsTheRecordedKernels) {
  const auto other = resume_with({"compute.gemm=mkl"});
  EXPECT_THAT(other.status().message(),
              HasSubstr("compute.gemm is \"mkl\" here and \"onednn\" in the saved run"));
  const auto automatic = resume_with({"compute.gemm=auto", "model.layers=auto"});
  ASSERT_TRUE(automatic.ok()) << automatic.status().message();
  EXPECT_EQ(automatic->config.compute.gemm, Gemm::kOneDnn);
  EXPECT_EQ(automatic->config.model.layers, 2);
}

TEST(ResumeConfig, KeepsTheToleranceOfProducts) {
  const auto other = resume_with({"compute.products=medium"});
  EXPECT_THAT(other.status().message(),
              HasSubstr("compute.products is \"medium\" here and \"highest\" in the saved run"));
}

TEST(BelongsToJob, KnowsWhatDecidesTheResult) {
  for (const char* key : {"model.width", "data.vocabulary", "data.validation_fraction",
                          "train.seed", "train.global_batch", "train.learning_rate", "train.clip",
                          "compute.dtype", "compute.products"}) {
    EXPECT_TRUE(belongs_to_job(key)) << key;
  }
  for (const char* key : {"run.ranks", "data.text", "train.steps", "train.micro_batch",
                          "train.split", "checkpoint.every", "comm.deadline", "compute.threads"}) {
    EXPECT_FALSE(belongs_to_job(key)) << key;
  }
}

TEST(PrintConfig, NamesTheCheckpointAsOrigin) {
  const std::string text =
      print_config(load_config({.base = recorded(), .base_source = "checkpoint"}));
  EXPECT_THAT(text, testing::ContainsRegex("steps = 20 +# checkpoint"));
}

}  // namespace
}  // namespace hanji::plan
