#include "hanji/train/timings.h"

#include <gtest/gtest.h>

namespace hanji::train {
namespace {

TEST(Timings, LeaveTheFirstStepOut) {
  std::vector<StepSeconds> steps(12, {.step = 2, .data = .25, .exposed_communication = .5});
  steps.front().step = 100;
  steps.back().step = 9;
  const Timings timings = timings_of(steps, nullptr);
  EXPECT_EQ(timings.step_median, 2);
  EXPECT_EQ(timings.compute, 1.25);
  EXPECT_EQ(timings.communication, .5);
}

TEST(Timings, OneStepIsItsOwnMedian) {
  EXPECT_EQ(timings_of({{.step = 3}}, nullptr).step_median, 3);
}

TEST(Timings, OverlappingCollectivesAreCountedOnce) {
  alignas(64) static std::byte memory[1 << 18];
  trace::Recorder recorder = trace::Recorder::format(memory, 0, 1);
  const auto collective = [&](int64_t start, int64_t end) {
    recorder.add({.start_ns = start,
                  .end_ns = end,
                  .lane = trace::Lane::kCommunication,
                  .category = trace::Category::kCommunication,
                  .step = 4});
  };
  collective(0, 1'000'000'000);
  collective(500'000'000, 2'000'000'000);
  collective(5'000'000'000, 6'000'000'000);
  recorder.add({.start_ns = 0, .end_ns = 9'000'000'000, .category = trace::Category::kCompute});
  EXPECT_DOUBLE_EQ(timings_of({{.step = 7}}, &recorder).communication, 3);
}

}  // namespace
}  // namespace hanji::train
