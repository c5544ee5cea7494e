#include "hanji/cli/bench/options.h"

#include <gmock/gmock.h>

#include <sstream>

namespace hanji::cli {
namespace {

using schedule::ReduceOp;
using schedule::Routine;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

Result<BenchWish> wish_of(const std::string& flags, int usable_cores = 2) {
  CommandLine command("bench", "", "");
  BenchOptions options;
  options.add_to(command.root());
  std::istringstream stream(flags);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  EXPECT_EQ(command.run(words), 0) << flags;
  return options.wish(usable_cores);
}

TEST(BenchOptions, OneSizeInBothPlacements) {
  const auto wish = wish_of("all_reduce --ranks 4 --bytes 64MiB");
  ASSERT_TRUE(wish.ok()) << wish.status().to_string();
  EXPECT_THAT(wish->routines, ElementsAre(Routine::kAllReduce));
  EXPECT_EQ(wish->ranks, 4);
  EXPECT_THAT(wish->placements, SizeIs(2));
  EXPECT_GE(wish->pairs, 30);
  const auto cases = wish->cases(Routine::kAllReduce);
  ASSERT_THAT(cases, SizeIs(1));
  EXPECT_EQ(cases[0].bytes, 64 << 20);
  EXPECT_EQ(cases[0].dtype, DType::kFloat32);
}

TEST(BenchOptions, LettersOfNcclTests) {
  const auto wish = wish_of(
      "reduce -b 8 -e 32K -f 4 -n 7 -w 3 -c 0 -o sum,max -d float,half -r all -a 1 -m 1 -t 1 -g 1",
      3);
  ASSERT_TRUE(wish.ok()) << wish.status().to_string();
  EXPECT_EQ(wish->calls, 7);
  EXPECT_EQ(wish->warmup, 3);
  EXPECT_FALSE(wish->check);
  EXPECT_EQ(wish->average, report::Average::kMean);
  EXPECT_THAT(report::sizes_of(wish->sizes), SizeIs(7));
  EXPECT_THAT(wish->cases(Routine::kReduce), SizeIs(7 * 2 * 2 * 3));
  EXPECT_THAT(wish->cases(Routine::kAllGather), SizeIs(7 * 2));
  EXPECT_THAT(wish->cases(Routine::kBarrier), SizeIs(1));
}

TEST(BenchOptions, AllPassesOverBitsOfFloats) {
  const auto wish = wish_of("all_reduce -o all -d all");
  ASSERT_TRUE(wish.ok()) << wish.status().to_string();
  for (const auto& call : wish->cases(Routine::kAllReduce)) {
    EXPECT_FALSE(is_bitwise(call.op) && is_floating(call.dtype));
    EXPECT_NE(call.op, ReduceOp::kPremulSum);
  }
  EXPECT_THAT(wish_of("all_reduce -o bit_xor").status().message(), HasSubstr("bit_xor of float32"));
}

TEST(BenchOptions, EveryMistakeIsTold) {
  const auto wish = wish_of(
      "all_rduce -b 1XB -n 0 -a 7 -o summ -r 9 --engine shmm --placement heep --peer opnmpi "
      "--hot --cold -m 4 -G --ranks 99");
  ASSERT_FALSE(wish.ok());
  EXPECT_EQ(wish.status().code(), Code::kInvalidArgument);
  for (const char* part :
       {"did you mean all_reduce?", "-b is '1XB'", "-n is '0'", "-a is '7'", "did you mean sum?",
        "-r is '9'", "did you mean shm?", "did you mean heap?", "did you mean openmpi?",
        "--hot and --cold", "-m,--agg_iters is not offered: calls are timed one by one",
        "-G,--cudagraph is not offered", "--ranks is '99'"}) {
    EXPECT_THAT(wish.status().message(), HasSubstr(part));
  }
}

TEST(BenchOptions, ContradictionsAreRefused) {
  EXPECT_THAT(wish_of("").status().message(), HasSubstr("no routine was named"));
  EXPECT_THAT(wish_of("all_reduce --bytes 8 -b 8").status().message(), HasSubstr("one of the two"));
  EXPECT_THAT(wish_of("all_reduce -b 8 -e 4").status().message(), HasSubstr("swap them"));
  EXPECT_THAT(wish_of("all_reduce -b 8 -e 64 -i 8 -f 2").status().message(), HasSubstr("give one"));
  EXPECT_THAT(wish_of("send --ranks 1").status().message(), HasSubstr("two ranks"));
}

}  // namespace
}  // namespace hanji::cli
