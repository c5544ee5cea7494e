#include "hanji/schedule/json.h"

#include <gmock/gmock.h>

#include <random>

#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/barrier.h"
#include "hanji/schedule/check.h"
#include "hanji/schedule/internal/test_lists.h"

namespace hanji::schedule {
namespace {

using testing::HasSubstr;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Json, EveryListComesBackUnchanged) {
  for (const int ranks : {1, 3, 8}) {
    for (const StepList& list : internal::all_lists(ranks, 1009)) {
      const auto read = from_json(to_json(list));
      ASSERT_TRUE(read.ok()) << internal::describe(list) << ": " << read.status().message();
      EXPECT_EQ(*read, list);
    }
  }
}

TEST(Json, AListThatWasReadRuns) {
  const StepList list = all_reduce_staged(3, 300, 128);
  const auto read = from_json(to_json(list));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(check(*read).message(), "");
  const auto inputs = internal::rough_inputs(list);
  EXPECT_EQ(internal::interpret(*read, inputs), internal::interpret(list, inputs));
}

TEST(Json, IsReadableByPeople) {
  EXPECT_EQ(to_json(barrier(2)),
            R"({"version":3,"routine":"barrier","algorithm":"sync","ranks":2,"count":0,)"
            R"("keeps_order":true,"slot_elements":0,"root":0,"parameter":0,"counts":[],)"
            R"("in_place":true,"owners":[],)"
            R"("per_rank":[[{"kind":"sync"}],[{"kind":"sync"}]]})");
  EXPECT_THAT(to_json(all_reduce_direct(2, 64)),
              HasSubstr(R"({"kind":"reduce","count":64,"from":[[0,"input",0,0],[1,"input",0,0]],)"
                        R"("to":[[0,"output",0,0],[1,"output",0,0]],"tree":[0,1,-1]})"));
}

TEST(Json, RefusesWithRankAndStep) {
  const std::string good = to_json(all_reduce_direct(2, 64));
  const auto refusal = [&](const std::string& from, const std::string& to) {
    const auto read = from_json(replaced(good, from, to));
    EXPECT_EQ(read.status().code(), Code::kCorrupt) << to;
    return read.status().message();
  };
  EXPECT_THAT(refusal("\"count\":64,\"from\"", "\"count\":64.0,\"from\""),
              HasSubstr("step list: rank 0, step 1: count is not an integer"));
  EXPECT_THAT(refusal("\"count\":64,\"from\"", "\"count\":65,\"from\""),
              HasSubstr("rank 0, step 1: 65 elements from 0 of rank 0's input, which has 64"));
  EXPECT_THAT(refusal("\"reduce\"", "\"reduse\""), HasSubstr("kind 'reduse' is unknown"));
  EXPECT_THAT(refusal("\"input\"", "\"heap\""), HasSubstr("place 'heap' is unknown"));
  EXPECT_THAT(refusal("\"tree\":", "\"wood\":"), HasSubstr("has no 'tree'"));
  EXPECT_THAT(refusal("\"tree\":", "\"wood\":1,\"tree\":"), HasSubstr("unknown member 'wood'"));
  EXPECT_THAT(refusal("[0,1,-1]", "[0,1,-2]"), HasSubstr("tree is -2"));
  EXPECT_THAT(refusal("[0,\"input\",0,0]", "[0,\"input\",0]"), HasSubstr("an operand is not"));
  EXPECT_THAT(refusal("[0,\"input\",0,0]", "[0,\"input\",0,18446744073709551615]"),
              HasSubstr("begin is 18446744073709551615"));
  EXPECT_THAT(refusal("\"version\":3", "\"version\":2"), HasSubstr("version is 2"));
  EXPECT_THAT(refusal("\"ranks\":2", "\"ranks\":3"), HasSubstr("steps for 2 of 3 ranks"));
  EXPECT_THAT(refusal("\"ranks\":2", "\"ranks\":true"), HasSubstr("ranks is not an integer"));
  EXPECT_THAT(refusal("\"keeps_order\":true", "\"keeps_order\":1"), HasSubstr("keeps_order"));
  EXPECT_THAT(refusal("all_reduce", "allreduce"), HasSubstr("routine 'allreduce' is unknown"));
  EXPECT_THAT(refusal("\"root\":0", "\"root\":1"), HasSubstr("root 1"));
  EXPECT_THAT(refusal("\"owners\":[]", "\"owners\":[[0,1]]"), HasSubstr("owners"));
  EXPECT_THAT(refusal("{\"kind\":\"sync\"}", "{\"kind\":\"sync\",\"count\":1}"),
              HasSubstr("rank 0, step 0: has an unknown member 'count'"));
  EXPECT_THAT(refusal("\"counts\":[]", "\"counts\":[32,32]"), HasSubstr("no counts per rank"));
  EXPECT_THAT(refusal("\"counts\":[]", "\"counts\":[-1]"), HasSubstr("counts is -1"));
  EXPECT_THAT(refusal("\"in_place\":true", "\"in_place\":0"), HasSubstr("in_place is neither"));
  EXPECT_THAT(refusal("{\"kind\":\"sync\"}", "null"), HasSubstr("rank 0, step 0"));
}

TEST(Json, RefusesWhatIsNoList) {
  for (const char* text : {"", "{}", "[]", "null", "{\"version\":1}", "[[[[[[[[[[[[", "\xff"}) {
    EXPECT_EQ(from_json(text).status().code(), Code::kCorrupt) << text;
  }
}

TEST(Json, HugeOwnersInAShortTextCostNothing) {
  const std::string text =
      replaced(to_json(internal::tree_list(1, 64)), "[[0,5]]", "[[0,1048576]]");
  EXPECT_TRUE(from_json(text).ok());
  EXPECT_FALSE(from_json(replaced(text, "1048576", "1048577")).ok());
}

TEST(Json, SurvivesAnyFlippedByte) {
  const std::string good = to_json(internal::tree_list(2, 100));
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    text[random() % text.size()] ^= static_cast<char>(1 << random() % 8);
    const auto read = from_json(text);
    if (read.ok()) {
      EXPECT_TRUE(check_bounds(*read).ok());
    } else {
      EXPECT_EQ(read.status().code(), Code::kCorrupt) << read.status().message();
    }
  }
}

}  // namespace
}  // namespace hanji::schedule
