#include "hanji/plan/rank_memory.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/plan/plan.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

int64_t bytes_in(const std::vector<MemoryLine>& lines, std::string_view category) {
  const auto found = std::ranges::find(lines, category, &MemoryLine::category);
  return found == lines.end() ? -1 : found->bytes;
}

TEST(RankMemory, ThePeakIsThatOfARankThatThereIs) {
  PlanInputs inputs = test_plan::two_cores();
  inputs.config.train.bits = Bits::kStable;
  inputs.config.train.global_batch = 6;
  const Plan plan = test_plan::made(inputs);
  // The first rank folds grains 0..2 in two buffers and saves, the second 3..5 in three and does not.
  EXPECT_THAT(gradient_buffers(plan), testing::ElementsAre(2, 3));
  const int64_t whole = total_bytes(plan.memory), peak = plan.predicted.peak_bytes_per_rank;
  EXPECT_LE(peak, whole - bytes_in(plan.memory, "parameters"))
      << "no rank has the copy and a third";
  EXPECT_GE(peak, whole - bytes_in(plan.memory, "checkpoint copy"));
  for (const MemoryLine& line : largest_lines(plan)) {
    EXPECT_EQ(line.bytes, bytes_in(plan.memory, line.category)) << line.category;
  }
}

}  // namespace
}  // namespace hanji::plan
