// A rank that is killed or stopped at any step of any collective: who says so, how soon, and what
// is left. `hanji_faults steps` goes through all of them, this through some of each kind.
#include "hanji/test/step_fault.h"

#include <gtest/gtest.h>

namespace hanji::shm {
namespace {

using test::make_step_job;
using test::num_points;
using test::run_step_fault;
using test::StepFault;
using test::StepJob;

constexpr double kSoon = 2;  // seconds; measured is 0.1 at most, where nothing else runs

// Each form with as few ranks as show all of its steps.
void expect_named(const test::RoutineForm& form, bool channel, const StepFault& fault) {
  const StepJob job = make_step_job(form, 2, channel);
  for (int point = 0; point < num_points(job, fault.victim); ++point) {
    StepFault here = fault;
    here.point = point;
    const auto seconds = run_step_fault(job, here);
    ASSERT_TRUE(seconds.ok()) << seconds.status().message();
    if (fault.signal == SIGKILL) {
      EXPECT_LT(*seconds, kSoon) << job.name << " at point " << point;
    }
  }
}

class StepFaults : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "processes; ranks as threads are in the other tests";
#endif
  }
};

TEST_F(StepFaults, AKilledRankIsNamedAtEveryStepOfEveryRoutine) {
  for (const auto& form : test::routine_forms(2)) {
    if (form.name.starts_with("uneven")) continue;  // the steps of the even ones
    expect_named(form, false, {.victim = 1});
  }
}

TEST_F(StepFaults, AKilledEndOfAChannelIsNamedAtEveryStep) {
  for (const auto& form : test::message_forms()) {
    expect_named(form, true, {.victim = 0});
    expect_named(form, true, {.victim = 1});
  }
}

TEST_F(StepFaults, AStoppedRankIsNamedAndGoesOnAsIfNothingHadBeen) {
  for (const auto& form : test::routine_forms(2)) {
    if (form.name != "all_reduce_flat" && form.name != "all_reduce_direct") continue;
    expect_named(form, false, {.victim = 0, .signal = SIGSTOP});
  }
}

TEST_F(StepFaults, AStoppedRankThatStaysIsNamedAtTheDeadline) {
  const StepJob job = make_step_job(test::routine_forms(3)[2], 3, false);
  const auto seconds =
      run_step_fault(job, {.victim = 1, .point = 2, .signal = SIGSTOP, .resumes = false});
  EXPECT_TRUE(seconds.ok()) << seconds.status().message();
}

}  // namespace
}  // namespace hanji::shm
