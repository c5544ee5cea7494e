#include "hanji/report/bench_line.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/base/text.h"

namespace hanji::report {
namespace {

constexpr int kWide = 250;  // columns

using testing::HasSubstr;
using testing::Not;

BenchLine measured() {
  BenchLine line;
  line.call = {.bytes = 4'000'000, .ranks = 2};
  line.engine = "shm";
  line.algorithm = "direct";
  line.seconds = {1e-3, 1e-3, 3e-3};
  line.round_medians = {1e-3, 1e-3, 3e-3};
  line.predicted_seconds = 1.1e-3;
  line.percent_of_limit = 97;
  line.wrong = 0;
  BenchPeer slow;
  slow.name = "openmpi";
  slow.seconds = {8e-3, 8e-3};
  slow.ratio = {.ratio = 8, .interval = {7, 9, .96}, .wins = 30, .sign_test = 1e-9};
  BenchPeer missing;
  missing.name = "mpich";
  missing.reason = "mpiexec.mpich was not found";
  line.peers.push_back(slow);
  line.peers.push_back(missing);
  return line;
}

TEST(BenchLine, JsonHasWhatScriptsRead) {
  const std::string text = to_json(measured());
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const base::Json json = *base::parse_json(text);
  EXPECT_EQ(json["routine"], "all_reduce");
  EXPECT_EQ(json["bytes"], 4'000'000);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["engine"], "shm");
  EXPECT_EQ(json["algorithm"], "direct");
  EXPECT_EQ(json["placement"], "heap");
  EXPECT_EQ(json["seconds_median"], 1e-3);
  EXPECT_EQ(json["seconds_p99"], 3e-3);
  EXPECT_EQ(json["predicted_seconds"], 1.1e-3);
  EXPECT_EQ(json["percent_of_limit"], 97);
  EXPECT_EQ(json["wrong"], 0);
  EXPECT_EQ(json["peers"]["openmpi"]["seconds_median"], 8e-3);
  EXPECT_EQ(json["peers"]["openmpi"]["ratio"], 8);
  EXPECT_TRUE(json["peers"]["mpich"]["seconds_median"].is_null());
  EXPECT_EQ(json["peers"]["mpich"]["reason"], "mpiexec.mpich was not found");
}

TEST(BenchLine, APeerThatNobodyAskedForIsForProgramsOnly) {
  BenchLine line = measured();
  line.peers.resize(1);
  line.peers[0].name = "gloo";
  line.peers[0].seconds.clear();
  line.peers[0].reason = "not asked for";
  line.peers[0].asked = false;
  EXPECT_THAT(bench_rows({line}), Not(HasSubstr("gloo")));
  EXPECT_THAT(to_json(line), HasSubstr("not asked for"));
}

TEST(BenchLine, AWrongResultHasNoTime) {
  BenchLine line = measured();
  line.seconds.clear();
  line.round_medians.clear();
  line.wrong = 5;
  const base::Json json = *base::parse_json(to_json(line));
  EXPECT_TRUE(json["seconds_median"].is_null());
  EXPECT_EQ(json["wrong"], 5);
  EXPECT_THAT(bench_rows({line}), HasSubstr(" 5 "));
}

TEST(BenchLine, RowsHaveBandwidthsOf1e9AndTheErrorOfThePrediction) {
  const std::string rows = bench_rows({measured()}, kWide);
  EXPECT_THAT(rows,
              testing::ContainsRegex("1000.00 +3000.00 +4.00 +4.00 +97 +0 +direct +1100.00 +10"));
  EXPECT_THAT(rows, HasSubstr("8.00 times ours (7.00 to 9.00), slower in 30 of 30 pairs"));
  EXPECT_THAT(rows, HasSubstr("mpich beside heap, in place: mpiexec.mpich was not found"));
}

TEST(BenchLine, FormsStandBelowTheirCallWhereARowIsTooLong) {
  const std::string rows = bench_rows({measured()});
  const std::string text = bench_heading(schedule::Routine::kReduce) + rows;
  for (const std::string_view line : base::split(text, '\n')) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_THAT(text, HasSubstr("# out of place\n"));
  EXPECT_THAT(rows, HasSubstr("heap\n    1000.00   3000.00"));
  EXPECT_THAT(rows, HasSubstr("8.00 times ours\n#       (7.00 to 9.00)"));
}

TEST(BenchLine, BothFormsShareARowAndTheHeadingHasTheirColumns) {
  BenchLine out = measured();
  out.call.routine = schedule::Routine::kReduce;
  out.call.in_place = false;
  out.peers.clear();
  BenchLine in = out;
  in.call.in_place = true;
  const std::string row = bench_rows({out, in}, kWide);
  const std::string heading = bench_heading(schedule::Routine::kReduce, kWide);
  EXPECT_EQ(row.size(), heading.size() / 3);
  EXPECT_THAT(heading, HasSubstr("out of place"));
  EXPECT_THAT(bench_heading(schedule::Routine::kAllReduce), Not(HasSubstr("out of place")));
}

}  // namespace
}  // namespace hanji::report
