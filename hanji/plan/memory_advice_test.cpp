#include "hanji/plan/memory_advice.h"

#include <gmock/gmock.h>

#include "hanji/base/text.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using test_plan::two_cores;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Layers that keep, and parameters that have, so many bytes.
ModelFacts facts_of_bytes(int64_t kept, int64_t of_parameters) {
  ModelFacts facts;
  for (int64_t i = 0; i < 4; ++i) {
    facts.layers.push_back({.name = "layer", .kept = {.per_sample = kept / 4}});
    facts.parameters.push_back({.elements = of_parameters / 16, .layer = i});
  }
  return facts;
}

/// A job that a preset's plan refuses, on 2 ranks of 1 GiB each unless `set` says otherwise.
PlanInputs too_large(std::vector<std::string> set, int64_t kept, int64_t of_parameters) {
  std::vector<Override> overrides = {{"run.ranks=2"}};
  for (std::string& one : set) overrides.push_back({std::move(one)});
  PlanInputs inputs = two_cores();
  const LoadedConfig loaded = parse_config("", "job.toml", overrides);
  EXPECT_TRUE(loaded.mistakes.empty()) << to_status(loaded.mistakes).message();
  inputs.config = loaded.config;
  inputs.machine.available_bytes = int64_t{2} << 30;
  inputs.model = facts_of_bytes(kept, of_parameters);
  return inputs;
}

std::string advice_for(const PlanInputs& inputs) {
  const Status refused = make_plan(inputs).status();
  EXPECT_EQ(refused.code(), Code::kOutOfMemory) << refused.message();
  const std::string text(refused.message());
  const size_t begin = text.find("; set ");
  return begin == std::string::npos ? text : text.substr(begin, text.find('\n') - begin);
}

constexpr int64_t kLarge = int64_t{64} << 30, kSmall = 1 << 20;

TEST(MemoryAdvice, OfActivationsIsWhatTheModelHas) {
  const std::string pairs = advice_for(too_large({"model.preset=evoformer-tiny"}, kLarge, kSmall));
  EXPECT_THAT(pairs, AllOf(HasSubstr("compute.recompute = true"), HasSubstr("mesh.axial = 2"),
                           HasSubstr("model.chunk_bytes = \"16MiB\""), HasSubstr("mesh.pp = 2")));
  EXPECT_THAT(pairs, AllOf(Not(HasSubstr("mesh.tp")), Not(HasSubstr("mesh.cp")),
                           Not(HasSubstr("offload")), Not(HasSubstr("zero"))));
  const std::string images = advice_for(too_large({"model.preset=resnet-tiny"}, kLarge, kSmall));
  EXPECT_THAT(images, AllOf(HasSubstr("compute.recompute = true"), HasSubstr("mesh.pp = 2"),
                            HasSubstr("fewer ranks or a smaller model")));
  EXPECT_THAT(images, AllOf(Not(HasSubstr("chunk_bytes")), Not(HasSubstr("mesh.tp")),
                            Not(HasSubstr("mesh.axial"))));
}

TEST(MemoryAdvice, OfStatesIsToShareCutOrOffloadThem) {
  const std::string text = advice_for(too_large({"model.preset=resnet-tiny"}, kSmall, kLarge / 16));
  EXPECT_THAT(text, AllOf(HasSubstr("parallel.data = \"zero3\""), HasSubstr("mesh.pp = 2"),
                          HasSubstr("offload.optimizer = \"file\" with offload.folder")));
  EXPECT_THAT(text, Not(HasSubstr("recompute")));
}

TEST(MemoryAdvice, IsNotWhatIsSetOrExcludedOrForOneRank) {
  const std::string set =
      advice_for(too_large({"model.preset=evoformer-tiny", "compute.recompute=true",
                            "model.chunk_bytes=1MiB", "mesh.axial=2"},
                           kLarge, kSmall));
  EXPECT_THAT(set, AllOf(Not(HasSubstr("recompute")), Not(HasSubstr("chunk_bytes")),
                         Not(HasSubstr("mesh."))));
  const std::string stable =
      advice_for(too_large({"model.preset=evoformer-tiny", "train.bits=stable"}, kLarge, kSmall));
  EXPECT_THAT(stable, AllOf(Not(HasSubstr("mesh.axial")), HasSubstr("recompute")))
      << "rows are computed in one block";
  const std::string alone =
      advice_for(too_large({"model.preset=resnet-tiny", "run.ranks=1"}, kLarge, kLarge));
  EXPECT_THAT(alone, AllOf(Not(HasSubstr("mesh.")), Not(HasSubstr("zero3")),
                           Not(HasSubstr("fewer ranks")), HasSubstr("a smaller model")));
}

TEST(MemoryAdvice, IsValidForTheJob) {
  for (const char* preset : {"nano", "resnet-tiny", "evoformer-tiny", "pairmixer"}) {
    const std::vector<std::string> job = {std::string("model.preset=") + preset};
    PlanInputs inputs = too_large(job, kLarge, kLarge / 16);
    if (job[0] == "model.preset=nano") {
      inputs.config.train.global_batch = 2;
      inputs.machine.available_bytes = 1 << 10;
    }
    std::string text = advice_for(inputs);
    ASSERT_TRUE(text.starts_with("; set one of ")) << text;
    text = text.substr(std::string_view("; set one of ").size());
    text = text.substr(0, text.find(", or take"));
    for (const std::string_view one : base::split(text, ',')) {
      std::string assignment(one);
      std::erase_if(assignment, [](char c) { return c == ' ' || c == '"'; });
      std::vector<Override> overrides = {{job[0]}, {"run.ranks=2"}};
      const size_t with = assignment.find("withoffload.folder");
      if (with != std::string::npos) overrides.push_back({"offload.folder=."});
      overrides.push_back({assignment.substr(0, with)});
      const LoadedConfig loaded = parse_config("", "job.toml", overrides);
      EXPECT_TRUE(loaded.mistakes.empty()) << to_status(loaded.mistakes).message();
    }
  }
}

}  // namespace
}  // namespace hanji::plan
