#include "hanji/layout/bucket.h"

#include <gmock/gmock.h>

namespace hanji::layout {
namespace {

using testing::ElementsAre;

TEST(BucketPlan, LastParametersComeFirst) {
  const std::vector<int64_t> sizes = {100, 200, 300, 10};
  const BucketPlan plan = bucket_plan(sizes, 4, 1200, 40);
  ASSERT_EQ(plan.buckets.size(), 3u);
  EXPECT_THAT(plan.buckets[0].parameters, ElementsAre(3));
  EXPECT_THAT(plan.buckets[1].parameters, ElementsAre(2));
  EXPECT_THAT(plan.buckets[2].parameters, ElementsAre(1, 0));
  EXPECT_THAT(plan.flat.offsets, ElementsAre(64 + 320 + 256, 64 + 320, 64, 0));
}

TEST(BucketPlan, BucketsAreContiguousAndCoverTheFlatBuffer) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < 50; ++i) sizes.push_back(i * 37 % 211);
  for (const int64_t cap : {1, 400, 4096, 1 << 20}) {
    const BucketPlan plan = bucket_plan(sizes, 4, cap, cap / 2 + 1);
    int64_t next = 0;
    size_t parameters = 0;
    for (const Bucket& bucket : plan.buckets) {
      EXPECT_EQ(bucket.begin, next);
      next = bucket.end;
      parameters += bucket.parameters.size();
      for (const int p : bucket.parameters) {
        EXPECT_GE(plan.flat.offsets[p], bucket.begin);
        EXPECT_LE(plan.flat.offsets[p] + sizes[p], bucket.end);
        EXPECT_EQ(plan.flat.offsets[p] % kAlignment, 0);
      }
    }
    EXPECT_EQ(next, plan.flat.count);
    EXPECT_EQ(parameters, sizes.size());
  }
}

TEST(BucketPlan, ALargeCapGivesOneBucketAfterTheFirst) {
  const std::vector<int64_t> sizes = {8, 8, 8};
  EXPECT_EQ(bucket_plan(sizes, 4, 1 << 30, 1).buckets.size(), 2u);
  EXPECT_EQ(bucket_plan(sizes, 4, 1 << 30, 1 << 30).buckets.size(), 1u);
}

TEST(BucketPlan, NoParametersNoBuckets) { EXPECT_TRUE(bucket_plan({}, 4, 1, 1).buckets.empty()); }

}  // namespace
}  // namespace hanji::layout
