#include "hanji/plan/profiled_steps.h"

#include <gmock/gmock.h>

#include "hanji/plan/test_bad_config.h"

namespace hanji::plan {
namespace {

TEST(ProfiledSteps, CountFromOne) {
  for (const char* text : {"steps 10-12", "10-12", " step 10 - 12 "}) {
    const auto steps = profiled_steps(text);
    ASSERT_TRUE(steps.ok()) << text;
    EXPECT_EQ(steps->begin, 9) << text;
    EXPECT_EQ(steps->end, 12) << text;
  }
  EXPECT_EQ(profiled_steps("step 3")->size(), 1);
  EXPECT_EQ(profiled_steps("")->size(), 0);
}

TEST(ProfiledSteps, AreRefusedWhereTheyAreNoneOrTooMany) {
  const auto why = [](const char* text) { return profiled_steps(text).status().message(); };
  for (const char* text : {"all", "steps", "0-3", "3-", "3-5 and 7", "-3", "1e3"}) {
    EXPECT_THAT(why(text), testing::HasSubstr("no range of steps")) << text;
  }
  EXPECT_THAT(why("12-10"), testing::HasSubstr("lies before its first"));
  EXPECT_THAT(why("1-101"), testing::HasSubstr("101 steps; at most 100"));
}

test_plan::BadConfigs bad_profiles() {
  return {
      {"a profile of steps that are none, or come after the end",
       "[train]\nsteps = 10\nprofile = \"steps 12-9\"\nwarmup_steps = 20\n",
       {},
       {"run.toml:3:1: train.profile is \"steps 12-9\", whose last step lies before its first; set "
        "train.profile = \"steps 10-12\"",
        "run.toml:4:1: train.warmup_steps 20 is above train.steps 10; set train.steps = 20 "
        "or more, or train.warmup_steps = \"auto\""}},
      {"a profile beyond the end",
       "[train]\nsteps = 10\nprofile = \"steps 9-12\"\n",
       {},
       {"run.toml:3:1: train.profile \"steps 9-12\" ends after train.steps 10; set train.profile = "
        "\"steps 9-10\", or train.steps = 12 or more"}}};
}

TEST(ProfiledSteps, AreRefusedWithAllOtherMistakes) { test_plan::expect_messages({bad_profiles}); }

}  // namespace
}  // namespace hanji::plan
