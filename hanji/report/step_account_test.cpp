#include "hanji/report/step_account.h"

#include <gmock/gmock.h>

#include <array>
#include <span>
#include <vector>

namespace hanji::report {
namespace {

using trace::Category;
using trace::Event;
using trace::Recorder;

constexpr int64_t kMs = 1'000'000;

class StepAccountTest : public testing::Test {
 protected:
  void add_event(const char* name, Category category, int64_t begin_ms, int64_t end_ms,
                 int group = -1, int64_t bytes = 0) {
    Event event{.start_ns = begin_ms * kMs, .end_ns = end_ms * kMs};
    event.name = recorder_.intern(name);
    event.category = category;
    event.group = group;
    event.bytes = bytes;
    recorder_.add(event);
  }

  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> memory_{Recorder::bytes_for(64) / sizeof(Line) + 1};
  Recorder recorder_ = Recorder::format(std::as_writable_bytes(std::span(memory_)), 0, 4);
};

TEST_F(StepAccountTest, WaitsAreTakenOutOfThePartsTheyLieIn) {
  add_event("waiting for rank 2", Category::kSkew, 20, 30, 0);
  add_event("all_reduce", Category::kCommunication, 15, 32, 0, 100);
  add_event("forward", Category::kCompute, 0, 10);
  add_event("backward", Category::kCompute, 10, 40);
  StepAccount account;
  add_events(account, recorder_, 0);
  EXPECT_DOUBLE_EQ(account.forward, 0.010);
  EXPECT_DOUBLE_EQ(account.backward, 0.020);
}

TEST_F(StepAccountTest, AWaitBelongsToTheCallOfItsGroupThatEndsAfterIt) {
  add_event("waiting for rank 1", Category::kSkew, 1, 3, 7);
  add_event("waiting for rank 3", Category::kSkew, 2, 9, 8);
  add_event("all_gather", Category::kCommunication, 0, 4, 7, 10);
  add_event("all_reduce", Category::kCommunication, 0, 10, 8, 30);
  add_event("all_reduce", Category::kCommunication, 10, 11, 8, 30);
  StepAccount account;
  add_events(account, recorder_, 0);
  EXPECT_THAT(account.waits, testing::ElementsAre(WaitAccount{"all_reduce", 3, 0.007},
                                                  WaitAccount{"all_gather", 1, 0.002}));
  EXPECT_THAT(account.calls, testing::ElementsAre(CallAccount{"all_gather", 1, 10, 0.004},
                                                  CallAccount{"all_reduce", 2, 60, 0.011}));
}

TEST_F(StepAccountTest, TheNextStepBeginsWhereTheLastOneEnded) {
  add_event("forward", Category::kCompute, 0, 10);
  StepAccount first;
  const uint64_t ticket = add_events(first, recorder_, 0);
  add_event("forward", Category::kCompute, 10, 13);
  StepAccount second;
  add_events(second, recorder_, ticket);
  EXPECT_DOUBLE_EQ(second.forward, 0.003);
}

StepAccount full() {
  return {.step = 3,
          .seconds = 0.5,
          .data = 0.01,
          .forward = 0.1,
          .backward = 0.2,
          .optimizer = 0.03,
          .transfer = 0.04,
          .exposed_transfer = 0.02,
          .skew = 0.07,
          .cpu = 0.45,
          .major_faults = 2,
          .samples = 8,
          .reading = 0.03,
          .fetching = 0.02,
          .memory_bytes = 1000,
          .axes = {{"dp", 3, 400, 0.02, 0.07}, {"pp", 2, 80}},
          .calls = {{"all_reduce", 3, 400, 0.09}},
          .waits = {{"all_reduce", 1, 0.07}}};
}

TEST(StepAccount, IsReadBackFromItsLine) {
  EXPECT_EQ(*step_account_from_json(to_json(full())), full());
  StepAccount untold = full();
  untold.fetching = untold.transfer = untold.exposed_transfer = untold.skew = std::nullopt;
  EXPECT_EQ(*step_account_from_json(to_json(untold)), untold);
  EXPECT_FALSE(compute_seconds(untold).has_value());
  EXPECT_LT(to_json(full()).size(), 500U);
}

TEST(StepAccount, WhatIsMissingOrOfAnotherTypeIsNamed) {
  const auto refusal = [](std::string line, const std::string& from, const std::string& to) {
    line.replace(line.find(from), from.size(), to);
    return step_account_from_json(line).status().message();
  };
  const std::string line = to_json(full());
  EXPECT_EQ(refusal(line, "\"skew\"", "\"skow\""), "skew is missing");
  EXPECT_EQ(refusal(line, "\"data\":0.01", "\"data\":\"x\""), "data is of another type");
  EXPECT_EQ(refusal(line, "[\"all_reduce\",1,", "[1,1,"), "waits is of another type");
  EXPECT_EQ(refusal(line, "\"steps\":1", "\"steps\":9"), "step and steps do not fit each other");
}

TEST(StepAccount, SumsKeepTheStepAndTheMemoryOfTheLaterOne) {
  StepAccount sum = full(), later = full();
  later.step = 4;
  later.memory_bytes = 900;
  later.waits = {{"all_reduce", 2, 0.2}};
  add(sum, later);
  EXPECT_EQ(sum.step, 4);
  EXPECT_EQ(sum.steps, 2);
  EXPECT_EQ(sum.memory_bytes, 900);
  EXPECT_DOUBLE_EQ(sum.seconds, 1.0);
  EXPECT_DOUBLE_EQ(*compute_seconds(sum), 2 * (0.5 - 0.01 - 0.02 - 0.07));
  EXPECT_EQ(sum.axes[0].bytes, 800);
  EXPECT_EQ(sum.major_faults, 4);
  EXPECT_EQ(sum.samples, 16);
  EXPECT_DOUBLE_EQ(*sum.fetching, 0.04);
  EXPECT_FALSE(sum.axes[1].skew.has_value());
  EXPECT_EQ(sum.waits[0].rank, 2);
  later.skew.reset();
  add(sum, later);
  EXPECT_FALSE(sum.skew.has_value()) << "a step that does not tell makes the sum unknown";
}

}  // namespace
}  // namespace hanji::report
