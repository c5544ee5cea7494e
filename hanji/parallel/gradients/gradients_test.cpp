#include "hanji/parallel/gradients/gradients.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include "hanji/base/status.h"
#include "hanji/parallel/flat_parameters.h"

namespace hanji::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Keeps what it is given; ranks it has none.
struct RecordingSink : GradientSink {
  explicit RecordingSink(size_t num_units, int64_t count, int64_t num_rows = 1) {
    for (size_t u = 0; u < num_units; ++u) memory.push_back(torch::full({num_rows, count}, 99.0));
  }
  const at::Tensor& rows(size_t unit) override { return memory[unit]; }
  void begin(size_t unit, Gradients& /*gradients*/) override {
    calls.push_back("begin " + std::to_string(unit));
    sums.push_back(memory[unit][0].clone());
  }
  void end(size_t unit, Gradients& gradients) override {
    calls.push_back("end " + std::to_string(unit));
    used.emplace_back(gradients.used(unit).begin(), gradients.used(unit).end());
  }

  std::vector<at::Tensor> memory, sums;
  std::vector<std::string> calls;
  std::vector<std::vector<uint8_t>> used;
};

/// Parameters of two elements each: a and b are unit 0, c is unit 1.
struct Job {
  explicit Job(GradientOptions of, int64_t num_rows = 1) : sink(2, 4, num_rows) {
    of.caller = "test";
    engine = std::make_unique<Gradients>(
        std::vector<GradientUnit>{{{{"a", a}, {"b", b}}, {0, 2}}, {{{"c", c}}, {0}}}, sink,
        std::move(of));
  }
  at::Tensor a = leaf(), b = leaf(), c = leaf();
  RecordingSink sink;
  std::unique_ptr<Gradients> engine;

  static at::Tensor leaf() { return torch::ones({2}, torch::requires_grad()); }
};

at::Tensor values(const std::vector<float>& some) { return torch::tensor(some); }

GradientOptions leaving(Remainder remainder) {
  GradientOptions of;
  of.remainder = remainder;
  of.ends_by_call = remainder == Remainder::kGradient;
  return of;
}

GradientOptions with_grains(int64_t num_grains) {
  GradientOptions of;
  of.num_grains = num_grains;
  of.owners = {{0, num_grains}};
  return of;
}

TEST(Gradients, UnitsBeginInOrderWhateverComesFirst) {
  Job job({});
  // Backward goes from the last operation to the first: c, then b, then a.
  ((job.a * 1).sum() + ((job.b * 2).sum() + (job.c * 3).sum())).backward();
  EXPECT_THAT(job.sink.calls, ElementsAre("begin 0", "begin 1", "end 0", "end 1"));
  EXPECT_TRUE(at::equal(job.sink.sums[0], values({1, 1, 2, 2})));
  EXPECT_TRUE(at::equal(job.c.grad(), values({3, 3})));
}

TEST(Gradients, WhatNoBackwardReachesIsZeroAndUnused) {
  Job job({});
  (job.b * 2).sum().backward();
  EXPECT_TRUE(at::equal(job.sink.sums[0], values({0, 0, 2, 2})));
  EXPECT_THAT(job.sink.used[0], ElementsAre(0, 1));
  EXPECT_THAT(job.sink.used[1], ElementsAre(0));
}

TEST(Gradients, AccumulatingMeansTheSameWhateverStaysInGrad) {
  for (const Remainder remainder :
       {Remainder::kSlot, Remainder::kNothing, Remainder::kTrap, Remainder::kGradient}) {
    Job job(leaving(remainder));
    if (remainder != Remainder::kGradient) job.engine->set_accumulating(true);
    ((job.a * 1).sum() + (job.c * 5).sum()).backward();
    EXPECT_TRUE(job.sink.calls.empty());
    if (remainder != Remainder::kGradient) job.engine->set_accumulating(false);
    ((job.a * 2).sum() + (job.b * 4).sum()).backward();
    if (remainder == Remainder::kGradient) job.engine->end_step();
    EXPECT_TRUE(at::equal(job.sink.sums[0], values({3, 3, 4, 4}))) << static_cast<int>(remainder);
    EXPECT_TRUE(at::equal(job.sink.sums[1].narrow(0, 0, 2), values({5, 5})));
    EXPECT_THAT(job.sink.used[1], ElementsAre(1));
  }
}

TEST(Gradients, AUnitLeavesInTheLastOfItsOwnBackwards) {
  for (const Remainder remainder : {Remainder::kSlot, Remainder::kTrap}) {
    Job job(leaving(remainder));
    job.engine->expect({1, 3});
    const auto of_last = [&](float factor) { (job.c * factor).sum().backward(); };
    of_last(1);
    of_last(2);
    EXPECT_TRUE(job.sink.calls.empty());
    (job.a * 7).sum().backward();  // b is unused, and its unit leaves all the same
    EXPECT_THAT(job.sink.calls, ElementsAre("begin 0"));
    EXPECT_THAT([&] { (job.a * 1).sum().backward(); },
                ThrowsMessage<Error>(HasSubstr("was told to expect 1")));
  }
}

TEST(Gradients, AStepEndsWithItsLastUnitOrByCall) {
  for (const bool by_call : {false, true}) {
    Job job({});
    job.engine->expect({1, 2});
    (job.c * 1).sum().backward();
    ((job.a * 7).sum() + (job.b * 8).sum()).backward();
    EXPECT_THAT(job.sink.calls, ElementsAre("begin 0"));
    by_call ? job.engine->end_step() : (job.c * 2).sum().backward();
    EXPECT_THAT(job.sink.calls, ElementsAre("begin 0", "begin 1", "end 0", "end 1"));
    const float sum = by_call ? 1 : 3;
    EXPECT_TRUE(at::equal(job.sink.sums[1].narrow(0, 0, 2), values({sum, sum})));
  }
}

TEST(Gradients, GrainsAreFoldedByTheTreeUntilTheStepIsEnded) {
  for (const bool by_call : {false, true}) {
    GradientOptions of = with_grains(3);
    of.ends_by_call = by_call;
    Job job(of, /*num_rows=*/2);
    for (int grain = 0; grain < 3; ++grain) {
      EXPECT_TRUE(job.sink.calls.empty());
      job.engine->begin_grain(grain);
      if (grain != 1) (job.a * std::pow(10.0, grain)).sum().backward();
      if (grain == 1) job.engine->finish();
    }
    if (by_call) job.engine->end_step();
    EXPECT_TRUE(at::equal(job.sink.sums[0], values({101, 101, 0, 0})));
    EXPECT_EQ(job.sink.calls.size(), 4U);
    if (!by_call) continue;
    EXPECT_THAT([&] { job.engine->end_step(); },
                ThrowsMessage<Error>(HasSubstr("computed 0 of its grains [0, 3)")));
  }
}

/// a and b are one part, c is the other; backwards come from the last grain to the first.
GradientOptions in_two_parts(const Job& job) {
  GradientOptions of = with_grains(3);
  of.parts = {{{job.a, job.b}, {2, 1, 0}}, {{job.c}, {2, 1, 0}}};
  return of;
}

TEST(Gradients, EachPartIsFoldedInItsOwnOrderWithTheBitsOfTheTree) {
  // (1 + big) + -big is 0 in float; added as they come, (-big + big) + 1, they are 1.
  constexpr float kBig = 3e7F;
  const std::vector<float> gradients = {1, kBig, -kBig};
  Job job({}, /*num_rows=*/3);
  job.engine.reset();
  GradientOptions of = in_two_parts(job);
  of.caller = "test";
  job.engine = std::make_unique<Gradients>(
      std::vector<GradientUnit>{{{{"a", job.a}, {"c", job.c}}, {0, 2}}, {{{"b", job.b}}, {0}}},
      job.sink, std::move(of));
  for (const int grain : {2, 1, 0}) {
    EXPECT_TRUE(job.sink.calls.empty());
    job.engine->begin_grain(grain, 1);
    (job.c * gradients[grain]).sum().backward();
    job.engine->begin_grain(grain, 0);
    ((job.a * gradients[grain]).sum() + job.b.sum()).backward();
  }
  EXPECT_TRUE(at::equal(job.sink.sums.at(0), values({0, 0, 0, 0})));
  EXPECT_TRUE(at::equal(job.sink.sums.at(1).narrow(0, 0, 2), values({3, 3})));
}

TEST(Gradients, AGrainOutOfItsPartsOrderIsRefused) {
  Job job({}, /*num_rows=*/3);
  job.engine.reset();
  GradientOptions of = in_two_parts(job);
  of.caller = "test";
  job.engine = std::make_unique<Gradients>(
      std::vector<GradientUnit>{{{{"a", job.a}, {"b", job.b}}, {0, 2}}, {{{"c", job.c}}, {0}}},
      job.sink, std::move(of));
  EXPECT_THAT([&] { job.engine->begin_grain(0, 1); },
              ThrowsMessage<Error>(HasSubstr("grain 2 is due")));
  job.engine->begin_grain(2, 1);
  EXPECT_THAT([&] { job.engine->begin_grain(2, 0); },
              ThrowsMessage<Error>(HasSubstr("has not ended")));
  EXPECT_THAT([&] { job.a.sum().backward(); }, ThrowsMessage<Error>(HasSubstr("parameter a")));
}

TEST(Gradients, WhatMakesNoSenseIsRefused) {
  Job job({});
  EXPECT_THAT([&] { job.engine->begin_grain(0); }, ThrowsMessage<Error>(HasSubstr("test()")));
  EXPECT_THAT([&] { job.engine->set_weight(1); }, ThrowsMessage<Error>(HasSubstr("kWeighted")));
  EXPECT_THAT([&] { job.engine->expect({1}); }, ThrowsMessage<Error>(HasSubstr("2 units")));
  Job stable(with_grains(1));
  EXPECT_THAT([&] { stable.engine->set_accumulating(true); },
              ThrowsMessage<Error>(HasSubstr("stable bits")));
}

}  // namespace
}  // namespace hanji::parallel
