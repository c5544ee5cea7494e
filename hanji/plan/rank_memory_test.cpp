#include "hanji/plan/rank_memory.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "hanji/plan/plan.h"
#include "hanji/plan/test_plan.h"

namespace hanji::plan {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

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

/// Two ranks whose processes take 70 MiB each.
PlanInputs with_processes(int64_t available_bytes) {
  PlanInputs inputs = test_plan::two_cores();
  inputs.config.model.preset = "nano";
  inputs.process = {int64_t{70} << 20, int64_t{80} << 20};
  inputs.machine.available_bytes = available_bytes;
  inputs.machine.available_by = "/sys/fs/cgroup/job/memory.max";
  return inputs;
}

TEST(RankMemory, TheProcessesOfTheRanksCountInWhatFits) {
  const Plan plan = test_plan::made(with_processes(int64_t{1} << 30));
  const std::vector<MemoryLine> own = process_lines(plan, plan.memory);
  const int64_t of_passes =
      line_bytes(plan.memory, "activations") + line_bytes(plan.memory, "workspace");
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(own[0], (MemoryLine{"process", int64_t{70} << 20}));
  EXPECT_EQ(own[1].bytes, static_cast<int64_t>(0.35 * static_cast<double>(of_passes)) + (8 << 20));
  EXPECT_EQ(resident_bytes(plan),
            plan.predicted.peak_bytes_per_rank + total_bytes(own) + (int64_t{80} << 20));
  EXPECT_EQ(plan_from_json(to_json(plan)).or_throw().process, plan.process);
  // A host holds both processes, and the libraries once.
  EXPECT_THAT(describe(plan), ContainsRegex("process: program and libtorch +73.4 MB +147 MB"));
  EXPECT_THAT(describe(plan), ContainsRegex("libraries, once on a host +83.9 MB +83.9 MB"));
  // To the byte: 80 % of what is free, shared out.
  const int64_t need = total_bytes(plan.memory) + total_bytes(own);
  const auto free = [&](int64_t each) {
    return static_cast<int64_t>(std::ceil(static_cast<double>(2 * each) / kUsableMemory));
  };
  PlanInputs inputs = with_processes(free(need) + 2);
  inputs.config.train.micro_batch = plan.micro_batch;
  EXPECT_TRUE(make_plan(inputs).ok());
  inputs.machine.available_bytes = free(need - 2);
  EXPECT_FALSE(make_plan(inputs).ok());
  inputs.are_started = true;  // what is free has no longer their 140 MiB
  EXPECT_TRUE(make_plan(inputs).ok());
}

TEST(RankMemory, ALimitBelowTheProcessesIsRefusedByName) {
  const PlanInputs inputs = with_processes(int64_t{100} << 20);
  const auto plan = make_plan(inputs);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::kOutOfMemory);
  EXPECT_THAT(plan.status().message(),
              AllOf(HasSubstr("may have 41.9 MB: 80 % of the 105 MB that "
                              "/sys/fs/cgroup/job/memory.max leaves a host, among its ranks"),
                    HasSubstr("raise that limit"), ContainsRegex("process +73.4 MB"),
                    ContainsRegex("kept by malloc +[0-9]")));
  // Before anything is counted, the number of ranks may be open.
  EXPECT_TRUE(check_processes(inputs).ok());
  PlanInputs two = inputs;
  two.config.run.ranks = 2;
  const Status refused = check_processes(two);
  EXPECT_EQ(refused.code(), Code::kOutOfMemory);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("2 ranks of 73.4 MB each"), HasSubstr("147 MB together"),
                    HasSubstr("of the 105 MB that /sys/fs/cgroup/job/memory.max leaves")));
  two.machine.available_bytes = int64_t{175} << 20;
  EXPECT_TRUE(check_processes(two).ok());
}

}  // namespace
}  // namespace hanji::plan
