#include "hanji/plan/gathers.h"

#include <gmock/gmock.h>

#include <regex>

#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using test_plan::made;
using testing::HasSubstr;

PlanInputs on_four_ranks() {
  PlanInputs inputs = test_plan::small_gpt({256, 10000, 1000});
  inputs.config.run.ranks = 4;
  inputs.config.parallel.data = Sharding::kZero3;
  return inputs;
}

TEST(Gathers, ComparesBothWaysToReshardWhereUnitsAreGathered) {
  PlanInputs inputs = on_four_ranks();
  inputs.config.parallel.share_memory = false;
  inputs.config.model.layers = 4;
  const Plan plan = made(inputs);
  const std::string flat = std::regex_replace(describe(plan), std::regex("\\s+"), " ");
  EXPECT_THAT(flat, HasSubstr("share one copy of moments in shared memory; step gathers "));
  EXPECT_THAT(flat, HasSubstr("; reshard = micro_batch gathers "));
  const ShardPlan shards = *shards_of(plan);
  int64_t units = 0;
  for (const layout::Unit& unit : shards.units) units += unit.flat.count;
  const auto actions = compute_actions(plan, 0);
  EXPECT_EQ(gathers_of(plan, 0, actions, Reshard::kStep).peak_elements, units);
  EXPECT_EQ(gathered_bytes(plan, Reshard::kStep), 3 * 4 * units) << "to four ranks, once";
  // The tied table, and of the blocks the one that computes and the one that is gathered meanwhile.
  const auto whole = [&](size_t i) { return shards.units[i].flat.count; };
  EXPECT_EQ(gathers_of(plan, 0, actions, Reshard::kMicroBatch).peak_elements,
            whole(0) + 2 * whole(1));
  EXPECT_GT(gathered_bytes(plan, Reshard::kMicroBatch), gathered_bytes(plan, Reshard::kStep));
}

TEST(Gathers, RanksThatWouldGatherDifferentNumbersOfTimesAreRefused) {
  PlanInputs inputs = on_four_ranks();
  inputs.config.train.global_batch = 6;
  inputs.config.train.micro_batch = 1;
  inputs.config.parallel.share_memory = false;
  EXPECT_EQ(made(inputs).config.parallel.reshard, Reshard::kStep);
  inputs.config.parallel.reshard = Reshard::kMicroBatch;
  EXPECT_THAT(std::string(make_plan(inputs).status().message()),
              HasSubstr("data coordinates have 1 to 2 of them; set parallel.reshard = \"step\""));
}

}  // namespace
}  // namespace hanji::plan
