#include "hanji/report/plan_against_run.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/plan/test_plan.h"

namespace hanji::report {
namespace {

using testing::HasSubstr;
using testing::Not;

plan::Plan some_plan() {
  plan::Plan plan;
  plan.ranks = 2;
  plan.predicted = {
      0.05, 0.04, 0.008, 0.004, 0.004, 0.001, 20000, int64_t{64} << 20, int64_t{6} << 20, 0, 0, 4};
  plan.memory = {{"parameters", int64_t{40} << 20}, {"activations", int64_t{24} << 20}};
  return plan;
}

Measured some_run() {
  Measured run;
  run.step_seconds = 0.04;
  run.transfer_seconds = 0.0004;
  run.skew_seconds = 0.002;
  run.tokens_per_second = 25000;
  run.wire_bytes_per_step = int64_t{6} << 20;
  run.collectives_per_step = 4;
  run.memory = {{"activations", int64_t{30} << 20}, {"unplanned", 1}};
  return run;
}

TEST(PlanAgainstRun, ErrorIsRelativeToWhatWasMeasured) {
  EXPECT_DOUBLE_EQ((Comparison{"x", Unit::kSeconds, 3, 2}).error().value(), 0.5);
  EXPECT_DOUBLE_EQ((Comparison{"x", Unit::kSeconds, 1, 2}).error().value(), -0.5);
  EXPECT_DOUBLE_EQ((Comparison{"x", Unit::kBytes, 0, 0}).error().value(), 0);
  EXPECT_FALSE((Comparison{"x", Unit::kBytes, 1, 0}).error().has_value());
  EXPECT_FALSE((Comparison{"x", Unit::kBytes, 1, std::nullopt}).error().has_value());
  EXPECT_FALSE((Comparison{"x", Unit::kBytes, std::nullopt, 1}).error().has_value());
}

TEST(PlanAgainstRun, MemoryIsThatOfTheRanksThatWereMeasured) {
  Measured run = some_run();
  run.planned_memory = {{"activations", int64_t{30} << 20}};
  const std::vector<Comparison> lines = compare(some_plan(), run);
  const auto found = std::ranges::find(lines, "memory.activations", &Comparison::name);
  ASSERT_NE(found, lines.end());
  EXPECT_EQ(found->error(), 0);
  EXPECT_EQ(std::ranges::find(lines, "memory.parameters", &Comparison::name), lines.end());
}

TEST(PlanAgainstRun, TheProcessIsALineOfItsOwnBesideTensors) {
  EXPECT_THAT(table(some_plan(), some_run()), Not(HasSubstr("resident"))) << "nobody measured it";
  plan::PlanInputs inputs = plan::test_plan::two_cores();
  inputs.process = {int64_t{70} << 20, int64_t{80} << 20};
  const plan::Plan plan = plan::test_plan::made(inputs);
  Measured run = some_run();
  run.process_bytes_per_rank = int64_t{56} << 20;
  const std::vector<Comparison> lines = compare(plan, run);
  const auto found = std::ranges::find(lines, "process_bytes_per_rank", &Comparison::name);
  ASSERT_NE(found, lines.end());
  EXPECT_DOUBLE_EQ(found->error().value(), 0.25);
  EXPECT_EQ(lines.back().name, "resident_bytes_per_rank");
  EXPECT_GT(lines.back().predicted.value(), (lines.end() - 3)->predicted.value() + (150 << 20));
}

TEST(PlanAgainstRun, Golden) {
  EXPECT_EQ(table(some_plan(), some_run()),
            R"(plan against run               predicted     measured       error    of a step
compute_seconds                  40.0 ms            -           -
transfer_seconds                 8.00 ms       400 us         x20      +19.0 %
exposed_transfer_seconds         4.00 ms            -           -
hidden_transfer_seconds          4.00 ms            -           -
skew_seconds                           -      2.00 ms           -
data_seconds                     1.00 ms            -           -
step_seconds                     50.0 ms      40.0 ms     +25.0 %      +25.0 %
tokens_per_second                 20.0 k       25.0 k     -20.0 %
wire_bytes_per_step              6.29 MB      6.29 MB      +0.0 %
collectives_per_step                   4            4      +0.0 %
memory.parameters                41.9 MB            -           -
memory.activations               25.2 MB      31.5 MB     -20.0 %
peak_bytes_per_rank              67.1 MB            -           -
)");
}

TEST(PlanAgainstRun, OfAFileTheRateOfAReadingThreadIsCompared) {
  plan::Plan plan = some_plan();
  plan.config.data.files = "x.beton";
  plan.times.sample_seconds = 0.0005;
  Measured run = some_run();
  run.thread_reads_per_second = 1600;
  EXPECT_THAT(table(plan, run),
              HasSubstr("\nthread_reads_per_second           2.00 k       1.60 k     +25.0 %\n"
                        "step_seconds"));
  plan.shares = {{.samples = {0, 4}}};
  plan.predicted.data_seconds = 0.004;  // with waiting for pages
  EXPECT_THAT(table(plan, run),
              HasSubstr("\nthread_reads_per_second           1.00 k       1.60 k     -37.5 %\n"));
}

TEST(PlanAgainstRun, OfATimedGpuTheStepIsComparedAndNoTransfer) {
  plan::Plan plan = some_plan();
  plan.config.compute.device = plan::Device::kCuda;
  plan.times.gpu.emplace();
  plan.ranks = 1;
  const std::string alone = table(plan, some_run());
  EXPECT_THAT(alone, HasSubstr("compute_seconds"));
  EXPECT_THAT(alone, HasSubstr("step_seconds"));
  EXPECT_THAT(alone, Not(HasSubstr("transfer")));
  plan.ranks = 2;
  EXPECT_THAT(table(plan, some_run()), HasSubstr("transfer and skew are in no line: NCCL"));
  for (const Comparison& line : compare(plan, some_run())) {
    if (line.name == "step_seconds") EXPECT_FALSE(line.predicted) << "without its transfer";
  }
}

TEST(PlanAgainstRun, OfGpusThatWereNotTimedMemoryAloneIsPredicted) {
  plan::Plan plan = some_plan();
  plan.config.compute.device = plan::Device::kCuda;
  const std::string shown = table(plan, some_run());
  EXPECT_THAT(shown, HasSubstr("memory.activations"));
  EXPECT_THAT(shown, Not(HasSubstr("seconds")));
}

TEST(PlanAgainstRun, OfGpusThePeakOfTheirTensorsIsComparedWithLinesThatLieThere) {
  plan::Plan plan = some_plan();
  EXPECT_THAT(table(plan, some_run()), Not(HasSubstr("gpu_")));
  plan.config.compute.device = plan::Device::kCuda;
  plan.memory.push_back({"checkpoint copy", int64_t{100} << 20});  // stays on the host
  Measured run = some_run();
  run.gpu_peak_bytes_per_rank = int64_t{80} << 20;
  run.gpu_reserved_bytes = int64_t{96} << 20;
  const std::string shown = table(plan, run);
  EXPECT_THAT(shown,
              HasSubstr("gpu_peak_bytes_per_rank          67.1 MB      83.9 MB     -20.0 %\n"
                        "gpu_reserved_bytes                     -       101 MB           -\n"));
}

TEST(PlanAgainstRun, SpeedUpNeedsBothRates) {
  Measured run = some_run();
  EXPECT_FALSE(scaling(some_plan(), run).has_value());
  run.one_rank_tokens_per_second = 12500;
  const auto gain = scaling(some_plan(), run);
  ASSERT_TRUE(gain.has_value());
  EXPECT_DOUBLE_EQ(gain->speed_up, 2);
  EXPECT_DOUBLE_EQ(gain->efficiency, 1);
  EXPECT_THAT(table(some_plan(), run), Not(HasSubstr("times as fast"))) << "the report has it";
  run.tokens_per_second.reset();
  EXPECT_FALSE(scaling(some_plan(), run).has_value());
}

TEST(PlanAgainstRun, JsonHasEveryLineAndNullForWhatIsAbsent) {
  const auto json = base::parse_json(to_json(compare(some_plan(), some_run())));
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_EQ(json->size(), 13u);
  EXPECT_DOUBLE_EQ((*json)["step_seconds"]["predicted"].get<double>(), 0.05);
  EXPECT_DOUBLE_EQ((*json)["step_seconds"]["measured"].get<double>(), 0.04);
  EXPECT_DOUBLE_EQ((*json)["step_seconds"]["error"].get<double>(), 0.25);
  EXPECT_TRUE((*json)["data_seconds"]["measured"].is_null());
  EXPECT_TRUE((*json)["data_seconds"]["error"].is_null());
  EXPECT_TRUE((*json)["skew_seconds"]["predicted"].is_null());
  EXPECT_DOUBLE_EQ((*json)["skew_seconds"]["measured"].get<double>(), 0.002);
  EXPECT_TRUE(json->contains("memory.activations"));
}

TEST(PlanAgainstRun, JsonGivesTheLinesBackWithTheirUnits) {
  const std::vector<Comparison> lines = compare(some_plan(), some_run());
  const std::vector<Comparison> back = comparisons_from_json(to_json(lines));
  ASSERT_EQ(back.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(back[i].name, lines[i].name);
    EXPECT_EQ(back[i].unit, lines[i].unit) << lines[i].name;
    EXPECT_EQ(back[i].predicted, lines[i].predicted) << lines[i].name;
    EXPECT_EQ(back[i].measured, lines[i].measured) << lines[i].name;
  }
}

}  // namespace
}  // namespace hanji::report
