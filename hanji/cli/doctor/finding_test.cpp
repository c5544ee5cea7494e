#include "hanji/cli/doctor/finding.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"

namespace hanji::cli {
namespace {

using testing::HasSubstr;

const Findings kSome = {{"limits", "open files", "1024"},
                        {"limits", "processes", "64", Verdict::kBroken, "ulimit -u 4096"},
                        {"disk", "free", "3 MiB", Verdict::kNote, "name a larger disk"}};

TEST(Finding, OnePageShowsEverySectionOnceAndEveryAdvice) {
  const std::string page = to_text(kSome);
  EXPECT_THAT(page, HasSubstr("limits\n  open files"));
  EXPECT_THAT(page, HasSubstr("X processes"));
  EXPECT_THAT(page, HasSubstr("-> ulimit -u 4096\n\ndisk\n! free"));
  EXPECT_THAT(page, HasSubstr("1 broken (X), 1 to know (!)"));
}

TEST(Finding, JsonHoldsTheSame) {
  const auto json = base::parse_json(to_json(kSome)).or_throw();
  EXPECT_EQ(json["broken"], 1);
  EXPECT_EQ(json["notes"], 1);
  EXPECT_EQ(json["findings"][1]["verdict"], "broken");
  EXPECT_EQ(json["findings"][2]["advice"], "name a larger disk");
}

TEST(Finding, OnlyWhatIsBrokenFails) {
  EXPECT_EQ(exit_code_of(kSome), 2);
  EXPECT_EQ(exit_code_of({kSome[0], kSome[2]}), 0);
}

}  // namespace
}  // namespace hanji::cli
