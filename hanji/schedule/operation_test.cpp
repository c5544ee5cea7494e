#include "hanji/schedule/operation.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

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

TEST(Operation, RoutinesKnowTheirArguments) {
  EXPECT_TRUE(has_root(Routine::kGather));
  EXPECT_FALSE(has_root(Routine::kAllGather));
  EXPECT_TRUE(reduces(Routine::kReduce));
  EXPECT_FALSE(reduces(Routine::kScatter));
  EXPECT_TRUE(has_shares(Routine::kAllToAll));
  EXPECT_FALSE(has_shares(Routine::kBroadcast));
}

TEST(Operation, CountsThatDifferHaveOtherNumbers) {
  std::set<uint32_t> seen;
  for (int64_t count = 0; count < 1000; ++count) seen.insert(hash_of_counts(count, {}));
  const std::vector<std::vector<int64_t>> shares = {{4},    {2, 2}, {1, 3},   {3, 1},
                                                    {0, 4}, {4, 0}, {2, 2, 0}};
  for (const auto& one : shares) seen.insert(hash_of_counts(4, one));
  EXPECT_EQ(seen.size(), 1000 + shares.size());
  EXPECT_EQ(hash_of_counts(4, shares[2]), hash_of_counts(4, std::vector<int64_t>{1, 3}));
}

TEST(Operation, ReduceOpsHaveTheirNames) {
  EXPECT_EQ(name_of(ReduceOp::kSum), "sum");
  EXPECT_EQ(name_of(ReduceOp::kAvg), "avg");
  EXPECT_EQ(name_of(ReduceOp::kProd), "prod");
  EXPECT_EQ(name_of(ReduceOp::kBitXor), "bit_xor");
  EXPECT_EQ(name_of(ReduceOp::kPremulSum), "premul_sum");
  EXPECT_TRUE(is_bitwise(ReduceOp::kBitAnd));
  EXPECT_FALSE(is_bitwise(ReduceOp::kPremulSum));
  EXPECT_FALSE(is_bitwise(ReduceOp::kMax));
}

}  // namespace
}  // namespace hanji::schedule
