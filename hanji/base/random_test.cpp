#include "hanji/base/random.h"

#include <gmock/gmock.h>

#include <set>

namespace hanji::base {
namespace {

using testing::ElementsAre;

// kat_vectors of Random123 (D. E. Shaw Research), philox4x32, 10 rounds.
TEST(Philox, EqualsTheVectorsOfItsAuthors) {
  EXPECT_THAT(Philox::draw(0, 0, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox::draw(~0ULL, ~0ULL, ~0ULL),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox::draw(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Uniform, CoversTheHalfOpenUnitInterval) {
  EXPECT_EQ(uniform(0), 0.0);
  EXPECT_EQ(uniform(0x80000000), 0.5);
  EXPECT_LT(uniform(0xFFFFFFFF), 1.0);
}

TEST(Uniform, HasTheMeanOfAUniform) {
  double sum = 0;
  constexpr int kDraws = 40000;
  for (uint64_t i = 0; i < kDraws / 4; ++i) {
    for (const uint32_t word : Philox::draw(1, 2, i)) sum += uniform(word);
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / 200);  // five standard errors
}

TEST(Mix, DependsOnKeyValueAndOrder) {
  std::set<uint64_t> keys;
  for (uint64_t key = 0; key < 30; ++key) {
    for (uint64_t value = 0; value < 30; ++value) keys.insert(mix(key, value));
  }
  EXPECT_EQ(keys.size(), 900u);
  EXPECT_NE(mix(mix(7, 1), 2), mix(mix(7, 2), 1));
}

}  // namespace
}  // namespace hanji::base
