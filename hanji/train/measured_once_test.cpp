#include "hanji/train/measured_once.h"

#include <gmock/gmock.h>

#include <fstream>
#include <optional>

#include "hanji/base/clock.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::train {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kDay = 24 * 3600;

int64_t now() { return base::wall_ns() / 1'000'000'000; }

class MeasuredOnce : public testing::Test {
 protected:
  /// What a run gets that would measure `value` at that time, under that load; fixed work takes the mark's
  /// probe, if it has one.
  std::string run(const std::string& value, Mark mark) {
    return measured_once(
               cache_,
               {.kind = "kernels",
                .key = R"({"build":"b"})",
                .is_sound = [](const std::string& kept) { return kept != "0"; },
                .measure =
                    [&](const std::string& before) {
                      before_.push_back(before);
                      return Result<std::string>(value);
                    },
                .mark =
                    [&](const std::function<void()>& measure) {
                      measure();
                      return mark;
                    },
                .look = [&] { return load_before_.value_or(mark.load); },
                .probe = [&] { return mark.probe; },
                .on_unkept = [&](const Status& reason) { unkept_.push_back(reason.message()); }})
        .or_throw()
        .value;
  }
  KeptMeasurement kept() const {
    return list_measurements(folder_.path() / "cache", "kernels").at(0);
  }

  test::TemporaryFolder folder_;
  Result<std::filesystem::path> cache_ = folder_.path() / "cache";
  std::vector<std::string> before_;    ///< What each measurement was told.
  std::vector<std::string> unkept_;    ///< Why each value was not stored.
  std::optional<double> load_before_;  ///< Just before a measurement, if it is another.
};

TEST_F(MeasuredOnce, WithoutAFolderEachRunMeasuresAndHearsWhy) {
  std::ofstream(folder_.path() / "file") << "no folder";
  cache_ = folder_.path() / "file" / "cache";
  EXPECT_EQ(run("1", {now(), 0}), "1");
  EXPECT_EQ(run("2", {now(), 0}), "2");
  cache_ = base::not_found("HOME is unset");
  EXPECT_EQ(run("3", {now(), 0}), "3");
  EXPECT_THAT(unkept_, testing::ElementsAre(HasSubstr("file/cache"), HasSubstr("file/cache"),
                                            "HOME is unset"));
}

TEST_F(MeasuredOnce, AQuietMeasurementHoldsForAllRunsAfterIt) {
  EXPECT_EQ(run("1", {now(), 0.02}), "1");
  EXPECT_EQ(run("2", {now(), 0.02}), "1");
  EXPECT_THAT(before_, testing::ElementsAre(""));
  EXPECT_EQ(kept().mark.load, 0.02);
}

TEST_F(MeasuredOnce, OneUnderLoadIsTakenAgainUntilTheMachineIsQuiet) {
  EXPECT_EQ(run("1", {now(), 0.5}), "1");
  EXPECT_EQ(run("2", {now(), 0.4}), "1") << "under load again: no better than the first";
  EXPECT_EQ(kept().mark.load, 0.5);
  EXPECT_EQ(run("3", {now(), 0.01}), "3");
  EXPECT_EQ(run("4", {now(), 0.01}), "3");
  EXPECT_THAT(before_, testing::ElementsAre("", "1")) << "the second would have been in vain";
}

TEST_F(MeasuredOnce, OneThatIsDisturbedWhileItIsTakenAgainIsDiscarded) {
  EXPECT_EQ(run("1", {now(), 0.5}), "1");
  load_before_ = 0;
  EXPECT_EQ(run("2", {now(), 0.4}), "1");
  EXPECT_THAT(before_, testing::ElementsAre("", "1")) << "it was taken";
  EXPECT_EQ(kept().mark.load, 0.5);
}

TEST_F(MeasuredOnce, OneOfABusyMachineGivesWayToOneOfHalfAsBusy) {
  EXPECT_EQ(run("1", {now(), 0.95}), "1");
  EXPECT_EQ(run("2", {now(), 0.92}), "1") << "disturbed alike";
  EXPECT_EQ(run("3", {now(), 0.4}), "3");
  EXPECT_EQ(kept().mark.load, 0.4);
  EXPECT_EQ(run("4", {now(), 0.95}), "3");
  EXPECT_THAT(before_, testing::ElementsAre("", "1")) << "the others would have been in vain";
}

TEST_F(MeasuredOnce, AnOldOneIsTakenAgain) {
  EXPECT_EQ(run("1", {now() - 31 * kDay, 0}), "1");
  EXPECT_EQ(run("2", {now() - 29 * kDay, 0}), "2");
  EXPECT_EQ(run("3", {now(), 0}), "2");
}

TEST_F(MeasuredOnce, AnotherSpeedOfTheMachineAsksForAnother) {
  EXPECT_EQ(run("1", {now(), 0, 0.010}), "1");
  EXPECT_EQ(run("2", {now(), 0, 0.0105}), "1");
  EXPECT_EQ(run("3", {now(), 0, 0.014}), "3") << "slower";
  EXPECT_EQ(run("4", {now(), 0, 0.014}), "3");
  EXPECT_EQ(run("5", {now(), 0, 0.010}), "5") << "fast again";
  EXPECT_EQ(kept().mark.probe, 0.010);
}

TEST_F(MeasuredOnce, ADamagedOrUnsoundFileIsWrittenAnew) {
  EXPECT_EQ(run("0", {now(), 0}), "0");
  EXPECT_EQ(run("1", {now(), 0}), "1");
  const auto file = measurement_file(folder_.path() / "cache", "kernels", R"({"build":"b"})");
  std::ofstream(file) << "{\"value\":";
  EXPECT_THAT(list_measurements(folder_.path() / "cache", "kernels"), IsEmpty());
  EXPECT_EQ(run("2", {now(), 0}), "2");
  EXPECT_THAT(before_, testing::Each(""));
}

TEST(WhyAgain, SaysLoadAgeClockOrSpeed) {
  EXPECT_EQ(why_again({1000 * kDay, 0.1}, 1030 * kDay), "");
  EXPECT_THAT(why_again({1000 * kDay, 0.38}, 1000 * kDay), HasSubstr("38 % of the CPUs"));
  EXPECT_THAT(why_again({1000 * kDay, 0}, 1031 * kDay), HasSubstr("31 days old"));
  EXPECT_THAT(why_again({1002 * kDay, 0}, 1000 * kDay), HasSubstr("future"));
  EXPECT_THAT(why_again({kDay, 0, 0.01}, kDay, 0.015), HasSubstr("1.50 times as long"));
  EXPECT_EQ(why_again({kDay, 0, 0}, kDay, 0.015), "") << "nothing to compare";
}

TEST(MarkWhile, TakesTheTimeThatALoadNeedsToShow) {
  const int64_t begin_ns = base::now_ns();
  int runs = 0;
  const Mark mark = mark_while([&] { ++runs; });
  EXPECT_EQ(runs, 1);
  EXPECT_GE(base::now_ns() - begin_ns, 100'000'000);
  EXPECT_NEAR(static_cast<double>(mark.measured_at), static_cast<double>(now()), 2);
  EXPECT_GE(mark.load, 0);
  EXPECT_LE(mark.load, 1);
}

TEST(LoadOfLate, IsWaitedForOnceASecondAtMost) {
  const int64_t begin_ns = base::now_ns();
  for (int i = 0; i < 100; ++i) EXPECT_LE(load_of_late(), 1);
  EXPECT_LT(base::now_ns() - begin_ns, 100 * 100'000'000);
}

TEST(KeptMeasurement, IsStrict) {
  const KeptMeasurement one{R"({"a":1})", {5, 0.25, 0.5}, "[1]"};
  const auto back = measurement_from_json(to_json(one)).or_throw();
  EXPECT_EQ(back.key, one.key);
  EXPECT_EQ(back.mark.load, 0.25);
  EXPECT_EQ(back.mark.probe, 0.5);
  EXPECT_EQ(back.value, "[1]");
  for (const char* text :
       {"", "{}", "[1]", R"({"key":1,"measured_at":"x","load":0,"probe":0,"value":1})",
        R"({"key":1,"measured_at":1,"load":null,"probe":0,"value":1})",
        R"({"key":1,"measured_at":1,"load":0,"probe":0,"value":1,"more":1})"}) {
    EXPECT_FALSE(measurement_from_json(text).ok()) << text;
  }
}

}  // namespace
}  // namespace hanji::train
