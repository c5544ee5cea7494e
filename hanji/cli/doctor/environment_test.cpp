#include "hanji/cli/doctor/environment.h"

#include <gmock/gmock.h>

namespace hanji::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Environment = std::vector<base::NamedValue>;

const Finding* find(const Findings& findings, std::string_view name) {
  for (const Finding& one : findings) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

TEST(Environment, WhatChangesNothingIsNotShown) {
  const auto found = judge_environment(Environment{{"EDITOR", "vi"}, {"HOME", "/root"}}, 2);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].verdict, Verdict::kGood);
}

TEST(Environment, TheLongestPrefixSpeaks) {
  const auto found = judge_environment(Environment{{"NCCL_DEBUG", "INFO"},
                                                   {"OMP_PLACES", "cores"},
                                                   {"OMP_SCHEDULE", "static"},
                                                   {"MKL_CBWR", "AVX2"}},
                                       2);
  EXPECT_THAT(find(found, "NCCL_DEBUG")->advice, HasSubstr("how much NCCL logs"));
  EXPECT_EQ(find(found, "OMP_PLACES")->verdict, Verdict::kNote);
  EXPECT_EQ(find(found, "OMP_SCHEDULE")->verdict, Verdict::kGood);
  EXPECT_THAT(find(found, "MKL_CBWR")->advice, HasSubstr("other bits"));
}

TEST(Environment, SumsInSwitchesAreWhatTheVariablesAskFor) {
  const auto plain = judge_environment(Environment{{"NCCL_IB_HCA", "mlx5"}}, 2);
  EXPECT_EQ(find(plain, "NVLS of NCCL")->value, "left to NCCL; the GPUs were not asked");
  EXPECT_THAT(find(plain, "SHARP of NCCL")->value, StartsWith("off"));
  const auto set =
      judge_environment(Environment{{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_COLLNET_ENABLE", "1"}}, 2);
  EXPECT_EQ(find(set, "NVLS of NCCL")->value, "off by NCCL_NVLS_ENABLE");
  EXPECT_THAT(find(set, "SHARP of NCCL")->value, StartsWith("requested by NCCL_COLLNET_ENABLE"));
  const auto asked = judge_environment(Environment{{"NCCL_NVLS_ENABLE", "1"}}, 2);
  EXPECT_THAT(find(asked, "NVLS of NCCL")->value, StartsWith("requested by NCCL_NVLS_ENABLE"));
  EXPECT_EQ(find(judge_environment(Environment{{"HOME", "/"}}, 2), "NVLS of NCCL"), nullptr);
}

TEST(Environment, EveryVariableOfNcclIsExplained) {
  const auto found = judge_environment(Environment{{"NCCL_BUFFSIZE", "1"},
                                                   {"NCCL_COMM_BLOCKING", "0"},
                                                   {"NCCL_P2P_DISABLE", "1"},
                                                   {"NCCL_SOKET_IFNAME", "e"}},
                                       2);
  EXPECT_THAT(find(found, "NCCL_BUFFSIZE")->advice, HasSubstr("bytes of the buffer"));
  EXPECT_EQ(find(found, "NCCL_BUFFSIZE")->verdict, Verdict::kGood);
  EXPECT_EQ(find(found, "NCCL_P2P_DISABLE")->verdict, Verdict::kNote);
  EXPECT_THAT(find(found, "NCCL_COMM_BLOCKING")->advice, HasSubstr("unset it"));
  EXPECT_THAT(find(found, "NCCL_SOKET_IFNAME")->advice,
              HasSubstr("did you mean NCCL_SOCKET_IFNAME?"));
}

TEST(Environment, ACountThatIsNoneIsBroken) {
  for (const char* value : {"", "two", "0", "-1", "2x"}) {
    const auto found = judge_environment(Environment{{"OMP_NUM_THREADS", value}}, 2);
    const Finding* bad = find(found, "OMP_NUM_THREADS is no count");
    ASSERT_NE(bad, nullptr) << value;
    EXPECT_EQ(bad->verdict, Verdict::kBroken);
  }
}

TEST(Environment, CountsThatConflictAreNamed) {
  const auto found =
      judge_environment(Environment{{"OMP_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "4"}}, 2);
  EXPECT_THAT(find(found, "conflict")->value, HasSubstr("OMP_NUM_THREADS 1, MKL_NUM_THREADS 4"));
  EXPECT_THAT(find(found, "MKL_NUM_THREADS above cores")->value, HasSubstr("4 threads on 2"));
  EXPECT_EQ(find(judge_environment(Environment{{"OMP_NUM_THREADS", "2"}}, 2), "conflict"), nullptr);
}

TEST(Environment, AListForNestedTeamsCountsByItsFirst) {
  const auto found = judge_environment(Environment{{"OMP_NUM_THREADS", "4,2"}}, 2);
  EXPECT_EQ(find(found, "OMP_NUM_THREADS is no count"), nullptr);
  EXPECT_THAT(find(found, "OMP_NUM_THREADS above cores")->value, HasSubstr("4 threads on 2"));
}

TEST(Environment, WhatCannotHoldTogetherIsAConflict) {
  const std::vector<std::pair<Environment, const char*>> conflicts = {
      {{{"OMP_NUM_THREADS", "4"}, {"OMP_THREAD_LIMIT", "2"}}, "OMP_THREAD_LIMIT 2"},
      {{{"GOMP_CPU_AFFINITY", "0"}, {"OMP_PLACES", "cores"}}, "GOMP_CPU_AFFINITY, OMP_PLACES"},
      {{{"NCCL_SOCKET_IFNAME", "eth0"}, {"GLOO_SOCKET_IFNAME", "ib0"}}, "\"eth0\""}};
  for (const auto& [environment, words] : conflicts) {
    const auto both = judge_environment(environment, 8);
    ASSERT_NE(find(both, "conflict"), nullptr) << words;
    EXPECT_THAT(find(both, "conflict")->value, HasSubstr(words));
    for (const auto& one : environment) {
      EXPECT_EQ(find(judge_environment(Environment{one}, 8), "conflict"), nullptr) << one.name;
    }
  }
}

TEST(Environment, AValueStaysOnItsLine) {
  const auto found = judge_environment(Environment{{"LD_PRELOAD", "a\nX broken\x1b[2J"}}, 2);
  EXPECT_EQ(find(found, "LD_PRELOAD")->value, "= \"a\\nX broken\\u001b[2J\"");
}

TEST(Environment, AMisspeltVariableOfOursIsNamed) {
  const auto found =
      judge_environment(Environment{{"HANJI_CACHEDIR", "/x"}, {"HANJI_CACHE_DIR", "/y"}}, 2);
  EXPECT_THAT(find(found, "HANJI_CACHEDIR")->advice, HasSubstr("no such variable"));
  EXPECT_EQ(find(found, "HANJI_CACHE_DIR")->verdict, Verdict::kGood);
}

}  // namespace
}  // namespace hanji::cli
