#include "hanji/schedule/operation.h"

#include <gtest/gtest.h>

namespace hanji::schedule {
namespace {

TEST(Operation, RoutineNamesGoBothWays) {
  for (int i = 0; i < kNumRoutines; ++i) {
    const auto routine = static_cast<Routine>(i);
    EXPECT_EQ(routine_named(name_of(routine)), routine);
  }
  EXPECT_EQ(name_of(Routine::kReduceScatter), "reduce_scatter");
  EXPECT_FALSE(routine_named("allreduce"));
}

TEST(Operation, ReduceOpsHaveTheirNames) {
  EXPECT_EQ(name_of(ReduceOp::kSum), "sum");
  EXPECT_EQ(name_of(ReduceOp::kAvg), "avg");
  EXPECT_EQ(name_of(ReduceOp::kProd), "prod");
}

}  // namespace
}  // namespace hanji::schedule
