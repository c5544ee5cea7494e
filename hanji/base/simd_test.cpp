#include "hanji/base/simd.h"

#include <gmock/gmock.h>
#include <hwy/targets.h>
#include <stdlib.h>

#include <cstdio>

namespace hanji::base {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Simd, EveryLevelHasAName) {
  for (const Simd level : kSimdLevels) EXPECT_EQ(*parse_simd(name_of(level)), level);
  EXPECT_THAT(parse_simd("AVX2").status().message(),
              AllOf(HasSubstr("'AVX2'"), HasSubstr("baseline, avx2, avx512")));
}

TEST(Simd, TheVariableLowersTheLevelOfTheProcessorAndNeverRaisesIt) {
  EXPECT_EQ(*allowed_simd(Simd::kAvx512, ""), Simd::kAvx512);
  EXPECT_EQ(*allowed_simd(Simd::kAvx512, "avx2"), Simd::kAvx2);
  EXPECT_EQ(*allowed_simd(Simd::kAvx2, "avx2"), Simd::kAvx2);
  const auto beyond = allowed_simd(Simd::kAvx2, "avx512");
  EXPECT_EQ(beyond.status().code(), Code::kUnsupported);
  EXPECT_THAT(beyond.status().message(), AllOf(HasSubstr("avx512"), HasSubstr("avx2 at most")));
  const auto none = allowed_simd(Simd::kAvx2, "sse");
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(none.status().message(), HasSubstr("HANJI_SIMD"));
}

/// libhwy's own word for what it dispatches to.
Simd dispatched() {
  const int64_t targets = hwy::SupportedTargets();
#if HWY_ARCH_X86
  if ((targets & HWY_AVX3) != 0) return Simd::kAvx512;
  if ((targets & HWY_AVX2) != 0) return Simd::kAvx2;
#endif
  (void)targets;
  return Simd::kBaseline;
}

TEST(Simd, EveryUsableLevelCanBeTakenUpAndDown) {
  const Simd most = usable_simd().or_throw();
  for (const Simd level : {Simd::kBaseline, most, Simd::kBaseline, Simd::kAvx2, most}) {
    if (level > most) continue;
    ASSERT_TRUE(use_simd(level).ok());
    EXPECT_EQ(*simd_in_use(), level);
    EXPECT_EQ(dispatched(), level);
  }
}

TEST(Simd, ALevelAboveTheUsableOneIsRefused) {
  if (*usable_simd() == Simd::kAvx512) GTEST_SKIP() << "every level is usable here";
  const Status status = use_simd(Simd::kAvx512);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("avx512"));
}

/// Prints, in a process that begins anew with HANJI_SIMD, what that process may use.
[[noreturn]] void print_usable(const char* variable) {
  ::setenv("HANJI_SIMD", variable, 1);
  const auto usable = usable_simd();
  std::fprintf(
      stderr, "%s, dispatched %s\n",
      usable.ok() ? std::string(name_of(*usable)).c_str() : usable.status().message().c_str(),
      std::string(name_of(dispatched())).c_str());
  std::exit(0);
}

TEST(SimdDeathTest, AProcessBeginsWithTheLevelOfTheVariable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // runs this binary again: nothing is read yet
  EXPECT_EXIT(print_usable("baseline"), testing::ExitedWithCode(0),
              "baseline, dispatched baseline");
  EXPECT_EXIT(print_usable("mmx"), testing::ExitedWithCode(0), "HANJI_SIMD: 'mmx'");
}

}  // namespace
}  // namespace hanji::base
