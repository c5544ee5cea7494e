#include <gmock/gmock.h>

#include <functional>

#include "hanji/base/json.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using base::Json;
using testing::AllOf;
using testing::HasSubstr;

PlanInputs some_inputs() {
  PlanInputs inputs;
  inputs.machine.usable_cores = 3;
  inputs.machine.core_cpus = {{0}, {2}, {4}};
  inputs.machine.available_bytes = int64_t{8} << 30;
  inputs.kernels.simd = base::Simd::kAvx2;
  inputs.kernels.why = "quoted \"words\" and \xff";
  inputs.data = {65, 10000, 0};
  inputs.config.train.split = {2, 1, 1};
  inputs.config.train.learning_rate = 0.1234567890123456789;
  inputs.config.train.seed = 123456789012345;
  inputs.config.train.schedule = LearningRateSchedule::kWarmupStableDecay;
  inputs.config.data.text = "a folder/with \\ and \n";
  return inputs;
}

Plan some_plan() {
  auto plan = make_plan(some_inputs());
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return *std::move(plan);
}

TEST(PlanJson, ReadsBackAsItWasWritten) {
  const Plan plan = some_plan();
  const std::string text = to_json(plan);
  const auto read = plan_from_json(text);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(to_json(*read), text);
  EXPECT_EQ(read->config.train.learning_rate, plan.config.train.learning_rate);
  EXPECT_EQ(read->config.data.text, plan.config.data.text);
  EXPECT_EQ(read->shares, plan.shares);
  EXPECT_EQ(read->memory, plan.memory);
  EXPECT_EQ(read->model, plan.model);
  EXPECT_EQ(read->rates, plan.rates);
}

TEST(PlanJson, KeepsTheMicroBatchThatMemoryHasCut) {
  Plan plan = some_plan();
  for (const int64_t wanted : {0, 12}) {
    plan.micro_batch_wanted = wanted;
    EXPECT_EQ(plan_from_json(to_json(plan)).or_throw().micro_batch_wanted, wanted);
  }
}

TEST(PlanJson, SaysTheLoadThatTimesWereTakenUnder) {
  PlanInputs inputs = some_inputs();
  inputs.load = 0.77;
  const Plan read = plan_from_json(to_json(make_plan(inputs).or_throw())).or_throw();
  EXPECT_EQ(read.load, 0.77);
  EXPECT_THAT(describe(read), HasSubstr("other processes used 77 % of the CPUs"));
  EXPECT_THAT(describe(some_plan()), testing::Not(HasSubstr("other processes")));
}

TEST(PlanJson, SaysHowThreadsWaitWhereARankHasSeveral) {
  EXPECT_FALSE(Json::parse(to_json(some_plan())).contains("waits"));
  PlanInputs inputs = some_inputs();
  inputs.config.compute.threads = 2;
  const std::string text = to_json(make_plan(inputs).or_throw());
  const Plan read = plan_from_json(text).or_throw();
  EXPECT_EQ(read.waits, (topology::WaitChoice{topology::WaitPolicy::kSleep,
                                              "6 threads of the ranks share 3 CPUs"}));
  Json wrong = Json::parse(text);
  wrong["waits"]["policy"] = "nap";
  EXPECT_THAT(plan_from_json(wrong.dump()).status().message(), HasSubstr("'nap'"));
}

TEST(PlanJson, RanksOfOneDataCoordinateRepeatItsShare) {
  PlanInputs inputs = some_inputs();
  inputs.config.mesh.axial = 2;
  inputs.config.run.ranks = 6;
  inputs.cut_axes = layout::kAxisNames;
  const Plan plan = make_plan(inputs).or_throw();
  const std::string text = to_json(plan);
  const auto read = plan_from_json(text);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(to_json(*read), text);
  EXPECT_EQ(read->mesh, plan.mesh);
  EXPECT_EQ(read->shares.size(), 3u);
  Json json = Json::parse(text);
  EXPECT_EQ(json["shares"].size(), 6u);
  json["shares"][5]["samples"] = {12, 15};
  EXPECT_THAT(plan_from_json(json.dump()).status().message(), HasSubstr("plan.shares[5] differs"));
}

TEST(PlanJson, AnAxisThatIsNotUsedLeavesNoTrace) {
  const Json json = Json::parse(to_json(some_plan()));
  EXPECT_EQ(json["config"]["mesh"].size(), 2u);
  EXPECT_EQ(json["mesh"].size(), 1u);
}

/// What a plan answers after `change` was made to its JSON; ok is a failure.
std::string answer(const std::function<void(Json&)>& change) {
  Json json = Json::parse(to_json(some_plan()));
  change(json);
  const auto plan = plan_from_json(json.dump());
  EXPECT_FALSE(plan.ok()) << "a wrong plan was taken";
  if (plan.ok()) return "";
  EXPECT_EQ(plan.status().code(), Code::kCorrupt);
  return plan.status().message();
}

TEST(PlanJson, EveryMemberIsNeeded) {
  const Json whole = Json::parse(to_json(some_plan()));
  for (const auto& [name, value] : whole.items()) {
    EXPECT_THAT(answer([&](Json& json) { json.erase(name); }), HasSubstr(name));
    if (!value.is_object()) continue;
    for (const auto& [member, ignored] : value.items()) {
      EXPECT_THAT(answer([&](Json& json) { json[name].erase(member); }), HasSubstr(member));
    }
  }
}

/// As plans were written before transfer and skew were told apart.
TEST(PlanJson, ReadsPlansOfFormat1) {
  const Plan plan = some_plan();
  Json json = Json::parse(to_json(plan));
  json["format"] = 1;
  const Json with_simd = json["kernels"];
  json["kernels"].erase("simd");
  json["kernels"].erase("float32_flops_per_second");
  Json& predicted = json["predicted"];
  for (const char* name :
       {"transfer_seconds", "exposed_transfer_seconds", "hidden_transfer_seconds"}) {
    predicted.erase(name);
  }
  predicted["communication_seconds"] = 0.25;
  predicted["exposed_communication_seconds"] = 0.125;
  const auto read = plan_from_json(json.dump());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->predicted.transfer_seconds, 0.25);
  EXPECT_EQ(read->predicted.exposed_transfer_seconds, 0.125);
  EXPECT_EQ(read->shares, plan.shares);
  EXPECT_FALSE(read->kernels.simd.has_value());
  json["kernels"] = with_simd;
  EXPECT_EQ(plan_from_json(json.dump()).or_throw().kernels.simd, plan.kernels.simd);
  json["predicted"]["transfer_seconds"] = 1;
  EXPECT_FALSE(plan_from_json(json.dump()).ok()) << "of format 2";
}

TEST(PlanJson, KernelsReadBackAloneAndForeignOnesAreRefused) {
  const KernelChoice kernels{.gemm = Gemm::kOneDnn,
                             .attention = Attention::kFlash,
                             .precision = Precision::kBFloat16,
                             .gemm_flops_per_second = 1e11,
                             .why = "gemm.onednn (9 % faster than gemm.mkl)",
                             .simd = base::Simd::kAvx2,
                             .weight_gradient = base::WeightGradient::kFloat32,
                             .float32_flops_per_second = 7e10};
  EXPECT_EQ(kernels_from_json(kernels_to_json(kernels)).or_throw(), kernels);
  EXPECT_THAT(kernels_to_json(kernels), testing::Not(HasSubstr("products")))
      << "as plans before had them";
  KernelChoice rounded = kernels;
  rounded.products = Products::kMedium;
  rounded.products_why = "medium, error 2.7e-03 (at most 3.9e-03)";
  EXPECT_EQ(kernels_from_json(kernels_to_json(rounded)).or_throw(), rounded);
  for (const char* text : {"", "{}", R"({"gemm":"fast"})", R"({"gemm":1})", "[1,2"}) {
    EXPECT_FALSE(kernels_from_json(text).ok()) << text;
  }
}

TEST(PlanJson, RatesThatOlderPlansHadAreIgnored) {
  const Plan plan = some_plan();
  Json json = Json::parse(to_json(plan));
  json["kernels"]["seconds_per_operation"] = 6e-6;
  json["kernels"]["elementwise_bytes_per_second"] = 18e9;
  EXPECT_EQ(to_json(plan_from_json(json.dump()).or_throw()), to_json(plan));
}

TEST(PlanJson, UnknownMembersAreRefused) {
  EXPECT_THAT(answer([](Json& j) { j["extra"] = 1; }), HasSubstr("plan.extra"));
  EXPECT_THAT(answer([](Json& j) { j["config"]["train"]["stpes"] = 1; }), HasSubstr("stpes"));
  EXPECT_THAT(answer([](Json& j) { j["shares"][1]["cpu"] = 1; }), HasSubstr("plan.shares[1].cpu"));
}

TEST(PlanJson, TypesAndRangesAreChecked) {
  EXPECT_THAT(answer([](Json& j) { j["format"] = 3; }), HasSubstr("plan.format is 3"));
  EXPECT_THAT(answer([](Json& j) { j["ranks"] = 1.5; }), HasSubstr("plan.ranks"));
  EXPECT_THAT(answer([](Json& j) { j["ranks"] = 65537; }), HasSubstr("plan.ranks"));
  EXPECT_THAT(answer([](Json& j) { j["ranks"] = UINT64_MAX; }), HasSubstr("plan.ranks"));
  EXPECT_THAT(answer([](Json& j) { j["config"]["train"]["steps"] = -1; }), HasSubstr("steps"));
  EXPECT_THAT(answer([](Json& j) { j["config"]["run"]["ranks"] = -1; }), HasSubstr("ranks"));
  EXPECT_THAT(answer([](Json& j) { j["config"]["model"]["tied"] = 1; }), HasSubstr("tied"));
  EXPECT_THAT(answer([](Json& j) { j["config"]["train"]["bits"] = "x"; }), HasSubstr("bits"));
  EXPECT_THAT(answer([](Json& j) { j["kernels"]["gemm"] = "auto"; }), HasSubstr("undecided"));
  EXPECT_THAT(answer([](Json& j) { j["kernels"]["dtype"] = "fp8"; }), HasSubstr("fp8"));
  EXPECT_THAT(answer([](Json& j) { j["kernels"]["products"] = "high"; }), HasSubstr("high"));
  EXPECT_THAT(answer([](Json& j) { j["kernels"]["simd"] = "mmx"; }), HasSubstr("mmx"));
  EXPECT_THAT(answer([](Json& j) { j["rates"]["sync_seconds"] = 0; }), HasSubstr("sync_seconds"));
  EXPECT_THAT(answer([](Json& j) { j["shares"] = 3; }), HasSubstr("plan.shares"));
  EXPECT_THAT(answer([](Json& j) { j["shares"][0]["cpus"] = {-1}; }), HasSubstr("cpus"));
}

TEST(PlanJson, WhatDoesNotAddUpIsRefused) {
  EXPECT_THAT(answer([](Json& j) { j["mesh"][0]["degree"] = 2; }), HasSubstr("mesh"));
  EXPECT_THAT(answer([](Json& j) { j["config"]["mesh"]["axial"] = 2; }),
              HasSubstr("mesh.axial differs"));
  EXPECT_THAT(answer([](Json& j) { j["shares"].erase(2); }), HasSubstr("2 members for 3"));
  EXPECT_THAT(answer([](Json& j) { j["shares"][1]["samples"] = {9, 12}; }), HasSubstr("follow 8"));
  EXPECT_THAT(answer([](Json& j) { j["shares"][2]["samples"] = {12, 15}; }), HasSubstr("15 of 16"));
  EXPECT_THAT(answer([](Json& j) { j["shares"][0]["micro_batches"] = 5; }), HasSubstr("shares"));
  EXPECT_THAT(answer([](Json& j) { j["micro_batch"] = 3; }), HasSubstr("differs"));
  EXPECT_THAT(answer([](Json& j) {
                j["ranks"] = 17;
                j["mesh"][0]["degree"] = 17;
                for (int i = 0; i < 14; ++i) j["shares"].push_back(j["shares"][2]);
              }),
              HasSubstr("plan.ranks is 17, but one host has at most 16"));
  EXPECT_THAT(answer([](Json& j) { j["config"]["model"]["heads"] = 7; }), HasSubstr("multiple"));
}

TEST(PlanJson, AxesThatExcludeEachOtherAreRefusedWithAllElseThatContradicts) {
  PlanInputs inputs = test_plan::two_cores();
  inputs.config.mesh.axial = 2;
  inputs.config.run.ranks = 2;
  inputs.cut_axes = layout::kAxisNames;
  const Plan plan = test_plan::made(inputs);
  Json json = Json::parse(to_json(plan));
  json["ranks"] = json["config"]["run"]["ranks"] = 4;
  json["mesh"].insert(json["mesh"].begin() + 1, Json{{"name", "tp"}, {"degree", 2}});
  json["config"]["mesh"]["tp"] = 2;
  json["model"] = Json::parse(facts_to_json(plan.model));
  json["config"]["model"]["heads"] = 7;
  for (int i = 0; i < 2; ++i) json["shares"].push_back(json["shares"][0]);
  EXPECT_THAT(plan_from_json(json.dump()).status().message(),
              AllOf(HasSubstr("mesh.axial is 2 and mesh.tp is 2, but axial stands in the place"),
                    HasSubstr("multiple of model.heads 7")));
}

TEST(PlanJson, NoCutAndNoFlippedByteGetsThroughUnseenOrCrashes) {
  const std::string text = to_json(some_plan());
  for (size_t length = 0; length < text.size(); length += 7) {
    EXPECT_FALSE(plan_from_json(std::string_view(text).substr(0, length)).ok()) << length;
  }
  for (size_t i = 0; i < text.size(); i += 3) {
    std::string flipped = text;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x11);
    const auto plan = plan_from_json(flipped);  // a changed digit may still be a plan
    EXPECT_TRUE(!plan.ok() || plan->shares.size() == 3);
  }
  EXPECT_FALSE(plan_from_json(std::string(100000, '[')).ok());
}

}  // namespace
}  // namespace hanji::plan
