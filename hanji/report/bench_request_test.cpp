#include "hanji/report/bench_request.h"

#include <gmock/gmock.h>

namespace hanji::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(BenchRequest, ALineSaysAllOfIt) {
  BenchRequest request;
  request.call = {.routine = schedule::Routine::kReduceScatter,
                  .bytes = 600,
                  .dtype = DType::kBFloat16,
                  .op = schedule::ReduceOp::kMax,
                  .root = 2,
                  .ranks = 3,
                  .in_place = false};
  request.refill = false;
  request.slots = 7;
  request.scrub_bytes = 1 << 20;
  request.calls = 50;
  request.warmup = 4;
  request.check = true;
  request.engine = "shm";
  request.placement = BenchPlacement::kPrivate;
  request.corrupt = 1;
  request.table = "/tmp/table.1";
  const auto read = parse_request(request.to_line(), 3);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->to_line(), request.to_line());
  EXPECT_EQ(read->call.bytes, 600);
  EXPECT_EQ(read->call.ranks, 3);
}

TEST(BenchRequest, WhatIsNoneIsRefused) {
  BenchRequest request;
  request.table = "t";
  const std::string line = request.to_line();
  for (const std::string& broken :
       {std::string(), std::string("measure"), line.substr(0, line.rfind(' ')),
        "measure all_rduce" + line.substr(18), "limit" + line.substr(7)}) {
    EXPECT_EQ(parse_request(broken, 2).status().code(), Code::kInvalidArgument) << broken;
  }
}

TEST(BenchAnswer, ALineSaysAllOfIt) {
  const auto read = parse_answer(BenchAnswer{.seconds = {1e-6, .5}, .wrong = 3}.to_line());
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read->seconds, ElementsAre(1e-6, .5));
  EXPECT_EQ(read->wrong, 3);
  const auto none = parse_answer("wrong 0");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->seconds.empty());
  EXPECT_EQ(parse_answer("error no such\nroutine")->error, "no such\nroutine");
  EXPECT_THAT(BenchAnswer{.error = "two\nlines"}.to_line(), "error two lines");
  EXPECT_EQ(parse_answer("0.5 0.5").status().code(), Code::kCorrupt);
}

TEST(BenchAnswer, TheSlowestRankIsACallsTimeUnlessAskedOtherwise) {
  const std::vector<BenchAnswer> answers = {{.seconds = {1, 5}}, {.seconds = {3, 1}}};
  EXPECT_THAT(over_ranks(answers, Average::kMax), ElementsAre(3, 5));
  EXPECT_THAT(over_ranks(answers, Average::kMin), ElementsAre(1, 1));
  EXPECT_THAT(over_ranks(answers, Average::kMean), ElementsAre(2, 3));
  EXPECT_THAT(over_ranks(answers, Average::kRank0), ElementsAre(1, 5));
}

}  // namespace
}  // namespace hanji::report
