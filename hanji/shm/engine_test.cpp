#include "hanji/shm/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hanji/schedule/all_gather.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/broadcast.h"
#include "hanji/schedule/reduce_scatter.h"
#include "hanji/shm/internal/test_group.h"

namespace hanji::shm {
namespace {

using namespace internal;
using namespace schedule;

enum class Way { kFlat, kDirect, kStaged };

StepList all_reduce_by(Way way, int ranks, int64_t count) {
  if (way == Way::kFlat) return all_reduce_flat(ranks, count);
  if (way == Way::kDirect) return all_reduce_direct(ranks, count);
  return all_reduce_staged(ranks, count, 1000);
}

class AllReduce : public testing::TestWithParam<std::tuple<int, int64_t, Way>> {};

TEST_P(AllReduce, SumHasItsClosedFormOnEveryRank) {
  const auto [ranks, count, way] = GetParam();
  const auto list = share(all_reduce_by(way, ranks, count));
  run_group(ranks, [&, ranks = ranks, count = count](Member& member) {
    float* data = member.allocate<float>(count);
    Call call = call_of(list);
    call.input = call.output = data;
    for (int round = 0; round < 5; ++round) {
      // Rank r holds i + r + round; n ranks sum to n (i + round) + n(n-1)/2.
      for (int64_t i = 0; i < count; ++i)
        data[i] = static_cast<float>(i % 1000 + member.rank + round);
      ASSERT_TRUE(member.call(call).ok());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(data[i], static_cast<float>(ranks * (i % 1000 + round) + ranks * (ranks - 1) / 2))
            << "element " << i << " round " << round;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, AllReduce,
                         testing::Combine(testing::Values(1, 2, 3, 5, 8, 16),
                                          testing::Values(0, 1, 2, 8, 9, 67, 10007),
                                          testing::Values(Way::kFlat, Way::kDirect, Way::kStaged)));

}  // namespace
}  // namespace hanji::shm
