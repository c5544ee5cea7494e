#include "hanji/cost/named_algorithm.h"

#include <gmock/gmock.h>

namespace hanji::cost {
namespace {

using schedule::Routine;
using testing::Contains;
using testing::HasSubstr;

std::string refusal(Routine routine, std::string name, Medium medium, int ranks = 0,
                    bool needs_order = true) {
  return check_named({routine, std::move(name), medium, ranks, needs_order}).message();
}

TEST(NamedAlgorithm, IsOneOfItsRoutineAndMedium) {
  EXPECT_EQ(refusal(Routine::kAllReduce, "staged", Medium::kMemory), "");
  EXPECT_THAT(refusal(Routine::kAllReduce, "stagd", Medium::kMemory),
              HasSubstr("did you mean staged?"));
  EXPECT_THAT(refusal(Routine::kAllReduce, "ring", Medium::kMemory),
              HasSubstr("no algorithm 'ring' in shared memory"));
  EXPECT_THAT(algorithm_names(Routine::kAllReduce, Medium::kMessages), Contains("ring"));
  EXPECT_THAT(refusal(Routine::kBarrier, "flat", Medium::kMemory), HasSubstr("no algorithm"));
}

TEST(NamedAlgorithm, KeepsTheOrderWhereItIsPromised) {
  EXPECT_THAT(refusal(Routine::kAllReduce, "ring", Medium::kMessages, 4),
              HasSubstr("another order"));
  EXPECT_EQ(refusal(Routine::kAllReduce, "ring", Medium::kMessages, 4, false), "");
  EXPECT_EQ(refusal(Routine::kAllReduce, "ring", Medium::kMessages, 2), "");
  EXPECT_THAT(refusal(Routine::kAllReduce, "ring", Medium::kMessages), HasSubstr("3 ranks"));
  EXPECT_EQ(refusal(Routine::kAllReduce, "reduce_broadcast", Medium::kMessages), "");
  EXPECT_EQ(refusal(Routine::kAllGather, "ring", Medium::kMessages, 4), "");  // adds nothing
}

}  // namespace
}  // namespace hanji::cost
