#include "hanji/train/save_log.h"

#include <gmock/gmock.h>

namespace hanji::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class Saves {
 public:
  SaveLog log{[this](int64_t step, const std::string& what) { warnings.emplace_back(step, what); }};
  std::vector<std::pair<int64_t, std::string>> warnings;
};

TEST(SaveLog, WarnsOfTheFirstFailureAndCountsTheOthersAtTheEnd) {
  Saves saves;
  saves.log.add({{10, {}}});
  for (int64_t step = 20; step <= 60; step += 10) {
    saves.log.add({{step, base::out_of_memory("the disk has 3 B free")}});
  }
  EXPECT_THAT(saves.warnings, ElementsAre(Pair(20, AllOf(HasSubstr("the newest is of step 10"),
                                                         HasSubstr("the disk has 3 B free")))));
  const Status end = saves.log.finish({{70, base::out_of_memory("the disk has 2 B free")}});
  EXPECT_EQ(end.code(), Code::kOutOfMemory);
  EXPECT_THAT(end.message(),
              AllOf(HasSubstr("step 70: "), HasSubstr("as did 5 saves before it since step 20"),
                    HasSubstr("the newest is of step 10"), HasSubstr("has 2 B free")));
  EXPECT_EQ(saves.warnings.size(), 1U);
  EXPECT_EQ(saves.log.num_failed(), 6);
}

TEST(SaveLog, SaysThatSavesSucceedAgainAndWarnsOfTheNextFailure) {
  Saves saves;
  saves.log.add({{1, base::out_of_memory("full")}, {2, base::out_of_memory("full")}, {3, {}}});
  saves.log.add({{4, base::out_of_memory("full")}});
  EXPECT_THAT(saves.warnings,
              ElementsAre(Pair(1, HasSubstr("none is there yet")),
                          Pair(3, HasSubstr("saved again; 2 saves since step 1 failed")),
                          Pair(4, HasSubstr("of step 3"))));
  EXPECT_TRUE(saves.log.finish({{5, {}}}).ok());
}

TEST(SaveLog, AnotherCauseIsWarnedOf) {
  Saves saves;
  saves.log.add({{1, base::out_of_memory("full")}, {2, base::invalid_argument("read-only")}});
  EXPECT_THAT(saves.warnings,
              ElementsAre(Pair(1, HasSubstr("full")), Pair(2, HasSubstr("read-only"))));
}

}  // namespace
}  // namespace hanji::train
