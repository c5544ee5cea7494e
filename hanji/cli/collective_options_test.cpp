#include "hanji/cli/collective_options.h"

#include <gmock/gmock.h>

namespace hanji::cli {
namespace {

using testing::HasSubstr;

CollectiveOptions textbook() {
  CollectiveOptions options;
  options.routine = "broadcast";
  options.bytes = "5MB";
  options.bandwidth = "1MB/s";
  return options;
}

std::string refusal(const std::function<void(CollectiveOptions&)>& change) {
  CollectiveOptions options = textbook();
  change(options);
  try {
    options.question();
    options.named_algorithm();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(CollectiveOptions, SayWhatIsAsked) {
  CollectiveOptions options = textbook();
  options.latency = "10us";
  options.chunk = "100kB";
  options.algorithm = "chain";
  const cost::Question question = options.question();
  EXPECT_EQ(question.routine, schedule::Routine::kBroadcast);
  EXPECT_EQ(question.bytes, 5'000'000);
  EXPECT_EQ(question.ranks, 8);
  EXPECT_EQ(question.segments, 50);
  EXPECT_DOUBLE_EQ(question.network.bytes_per_second, 1e6);
  EXPECT_DOUBLE_EQ(question.network.latency_seconds, 1e-5);
  EXPECT_EQ(options.named_algorithm()->name, "chain");
}

TEST(CollectiveOptions, RefuseWithTheFlagAndAWayOut) {
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_THAT(refusal([](auto& o) { o.routine = "brodcast"; }),
              HasSubstr("unknown routine 'brodcast'; routines: broadcast, "));
  EXPECT_THAT(refusal([](auto& o) { o.routine = "brodcast"; }),
              HasSubstr("did you mean broadcast?"));
  EXPECT_THAT(refusal([](auto& o) { o.routine = "barrier"; }), HasSubstr("unknown routine"));
  EXPECT_THAT(refusal([](auto& o) { o.algorithm = "binominal"; }),
              HasSubstr("broadcast has no algorithm 'binominal'; algorithms: one_by_one, "));
  EXPECT_THAT(refusal([](auto& o) { o.algorithm = "binominal"; }),
              HasSubstr("did you mean binomial?"));
  EXPECT_THAT(refusal([](auto& o) { o.bytes = "5 apples"; }), HasSubstr("the size: '5 apples'"));
  EXPECT_THAT(refusal([](auto& o) { o.bytes = "0"; }), HasSubstr("1 B to 1 TiB"));
  EXPECT_THAT(refusal([](auto& o) { o.bandwidth = "1MB"; }),
              HasSubstr("--bandwidth: '1MB' is no rate"));
  EXPECT_THAT(refusal([](auto& o) { o.bandwidth = "0MB/s"; }), HasSubstr("no rate above 0"));
  EXPECT_THAT(refusal([](auto& o) { o.latency = "10"; }), HasSubstr("--latency: '10'"));
  EXPECT_THAT(refusal([](auto& o) { o.ranks = 10241; }),
              HasSubstr("--ranks is 10241; it is 1 to 10240"));
  EXPECT_THAT(refusal([](auto& o) { o.ranks = 1024, o.bytes = "1TiB"; }),
              HasSubstr("the size is 1TiB; of 1024 ranks it is at most 274877906944 bytes"));
  EXPECT_THAT(refusal([](auto& o) { o.root = 8; }), HasSubstr("--root is 8; it is 0 to 7"));
  EXPECT_THAT(refusal([](auto& o) { o.chunk = "1B"; }), HasSubstr("at least 25000 bytes"));
  EXPECT_THAT(refusal([](auto& o) { o.ranks_per_host = 3; }), HasSubstr("does not divide 8"));
}

TEST(CollectiveOptions, ExplainBarrierAndSendToo) {
  CollectiveOptions options;
  options.explains = true;
  options.routine = "barrier";
  EXPECT_EQ(options.question().bytes, 0);
  options.routine = "send";
  EXPECT_EQ(options.question().bytes, 1'000'000);
  const auto explained = [](auto change) {
    return refusal([&](CollectiveOptions& o) {
      o.explains = true;
      change(o);
    });
  };
  EXPECT_THAT(explained([](auto& o) { o.routine = "barrier"; }), HasSubstr("leave out the size"));
  EXPECT_THAT(explained([](auto& o) { o.routine = "barier"; }), HasSubstr("did you mean barrier?"));
  EXPECT_THAT(explained([](auto& o) {
                o.verbs = {"parallel"};
                o.routine = "paralel";
              }),
              HasSubstr("did you mean parallel?"));
  EXPECT_THAT(explained([](auto& o) { o.routine = "send", o.ranks = 1; }),
              HasSubstr("--ranks is 1; it is 2 to"));
  EXPECT_THAT(explained([](auto& o) { o.routine = "tree_reduce"; }), HasSubstr("unknown routine"));
}

TEST(CollectiveOptions, SayEveryMistake) {
  const std::string why = refusal([](auto& o) {
    o.bytes = "nan";
    o.bandwidth = "-1";
    o.latency = "foo";
    o.reduce = "fast";
    o.ranks = 0;
    o.root = -1;
    o.segments = -2;
    o.chunk = "-1B";
    o.ranks_per_host = -3;
    o.algorithm = "bar";
  });
  for (const char* words : {"the size: 'nan'", "--bandwidth: '-1'", "--latency: 'foo'",
                            "--reduce: 'fast'", "--ranks is 0", "--root is -1", "--segments is -2",
                            "--chunk", "--ranks-per-host is -3", "no algorithm 'bar'"}) {
    EXPECT_THAT(why, HasSubstr(words));
  }
}

TEST(ParseRate, TakesBytesAndBits) {
  EXPECT_DOUBLE_EQ(*parse_rate("1MB/s"), 1e6);
  EXPECT_DOUBLE_EQ(*parse_rate("2KiB/s"), 2048);
  EXPECT_DOUBLE_EQ(*parse_rate("10Gbit/s"), 1.25e9);
  for (const char* text : {"", "MB/s", "1/s", "-1MB/s", "1MB/h", "1XB/s"}) {
    EXPECT_FALSE(parse_rate(text).ok()) << text;
  }
}

}  // namespace
}  // namespace hanji::cli
