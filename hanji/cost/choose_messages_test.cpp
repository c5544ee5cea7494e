#include "hanji/cost/choose_messages.h"

#include <gmock/gmock.h>

namespace hanji::cost {
namespace {

using schedule::Routine;
using testing::HasSubstr;

MessageQuery of(Routine routine, int64_t count, bool needs_order) {
  MessageQuery query;
  query.query = {.routine = routine, .element_bytes = 4, .ranks = 8, .count = count};
  query.needs_order = needs_order;
  query.network = {.latency_seconds = 50e-6, .bytes_per_second = 1e9};
  return query;
}

std::string winner(const MessageQuery& query) {
  return choose_messages(query).or_throw().front().list.algorithm;
}

TEST(ChooseMessages, TakesTheCheapestBySize) {
  EXPECT_EQ(winner(of(Routine::kAllReduce, 8, false)), "recursive_doubling");
  const auto large = choose_messages(of(Routine::kAllReduce, 1 << 24, false)).or_throw();
  for (size_t i = 1; i < large.size(); ++i) EXPECT_LE(large[i - 1].seconds, large[i].seconds);
  EXPECT_NE(large.front().list.algorithm, "recursive_doubling");
}

TEST(ChooseMessages, OnlyWhatKeepsTheOrderWhereItIsPromised) {
  for (const int64_t count : {8, 1 << 20}) {
    for (const auto& one : choose_messages(of(Routine::kAllReduce, count, true)).or_throw()) {
      EXPECT_TRUE(one.list.keeps_order) << one.list.algorithm;
    }
  }
  MessageQuery narrow = of(Routine::kAllReduce, 1 << 16, true);
  narrow.query.element_bytes = 2;
  for (const auto& one : choose_messages(narrow).or_throw()) {
    EXPECT_FALSE(makes_partial_sums(one.list)) << one.list.algorithm;
  }
}

TEST(ChooseMessages, TakesWhatWasNamedOrRefusesIt) {
  MessageQuery query = of(Routine::kAllReduce, 1 << 20, false);
  query.named = "reduce_broadcast";
  EXPECT_EQ(winner(query), "reduce_broadcast");
  query.named = "ring";
  query.needs_order = true;
  EXPECT_THAT(choose_messages(query).status().message(), HasSubstr("another order"));
  query.named = "rang";
  EXPECT_THAT(choose_messages(query).status().message(), HasSubstr("did you mean ring?"));
}

}  // namespace
}  // namespace hanji::cost
