#include "hanji/report/certificate.h"

#include <gmock/gmock.h>

#include <limits>

#include "hanji/base/json.h"

namespace hanji::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Certificate some_certificate(int64_t steps = 2) {
  Certificate certificate;
  plan::Plan& plan = certificate.plan;
  plan.ranks = 2;
  plan.mesh = layout::MeshShape::create({{"dp", 2}}, 2).or_throw();
  plan.shares = {{{0, 6}, 2}, {{6, 10}, 2}};
  plan.cpus.resize(2);
  plan.job_hash = "0123456789abcdef0123456789abcdef";
  plan.config.train.steps = steps;
  plan.config.train.grain = 2;
  plan.config.train.bits = plan::Bits::kStable;
  certificate.build_id = "0.1.0+17";
  certificate.host = "here";
  certificate.expected.state_sha256 = std::string(64, '5');
  for (int64_t step = 0; step <= steps; ++step) {
    certificate.expected.steps.push_back(
        {.step = step,
         .parameters_sha256 = std::string(64, static_cast<char>('a' + step % 6)),
         .digests = {{Quantity::kGradient, "w", 17}, {Quantity::kParameter, "w", 18}}});
  }
  return certificate;
}

FirstDifference some_difference() {
  return {.step = 1,
          .quantity = Quantity::kGradient,
          .tensor = "w",
          .ranks = {0, 1},
          .num_tensors = 1,
          .of_tensors = 1,
          .axes = {"dp"},
          .distance = Distance{0.25, 12, 3, 7}};
}

TEST(Certificate, Golden) {
  EXPECT_EQ(describe(some_certificate()),
            R"(verify job 0123456789abcdef: 2 steps, seed 1, bits stable
one process  no group, no reducer; one grain after another, summed by the tree over grains
2 ranks      grains of 2: 3 2; engine shm, 1 bucket of at most 26.2 MB
compared     1 gradients, 1 parameters, 0 buffers, 0 of the optimizer,
             loss and gradient norm, on every rank after every step
  step    0  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa  equal
  step    1  bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb  equal
  step    2  cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc  equal
EQUAL: 5555555555555555555555555555555555555555555555555555555555555555 on the one process and on all 2 ranks
)");
}

TEST(Certificate, ADifferenceIsTheLastWord) {
  Certificate certificate = some_certificate();
  certificate.difference = some_difference();
  const std::string text = describe(certificate);
  EXPECT_THAT(text, HasSubstr(R"(b  DIFFERS
DIFFERS after step 1: gradient w on ranks 0, 1
  axis       dp: without it the ranks are one process
  cause      every rank's own gradients are right; adding them up, or scaling, is not
  replicas   hold the same bits of it, but wrong ones
  distance   at most 0.25, 12 ulps; 3 elements, the first at 7
  also       1 of 1 of this kind differ on rank 0
)"));
  EXPECT_THAT(text, Not(HasSubstr("step    2"))) << "what follows from it is no news";
  EXPECT_THAT(text, Not(HasSubstr("EQUAL")));
}

TEST(Certificate, NamesRanksWithTheirCoordinates) {
  Certificate certificate = some_certificate();
  certificate.plan.ranks = 4;
  certificate.plan.mesh = layout::MeshShape::create({{"dp", 2}, {"tp", 2}}, 4).or_throw();
  certificate.difference = some_difference();
  certificate.difference->ranks = {1, 2};
  EXPECT_THAT(describe(certificate),
              AllOf(HasSubstr("gradient w on ranks 1 (dp=0,tp=1), 2 (dp=1,tp=0)\n"),
                    HasSubstr("differ on rank 1 (dp=0,tp=1)\n")));
}

TEST(Certificate, SaysWhereADifferenceComesFrom) {
  Certificate certificate = some_certificate();
  FirstDifference& found = certificate.difference.emplace(some_difference());
  found.backward = {.rank = 1, .grain = 4};
  found.replicas_agree = false;
  EXPECT_THAT(describe(certificate), HasSubstr("rank 1, grain 4: its own gradients differ"));
  EXPECT_THAT(describe(certificate), HasSubstr("hold different bits"));
  found.backward.reset();
  found.quantity = Quantity::kParameter;
  EXPECT_THAT(describe(certificate), HasSubstr("what follows them is not"));
  found.step = 0;
  EXPECT_THAT(describe(certificate), HasSubstr("do not begin where"));
  found.quantity = Quantity::kBuffer;
  EXPECT_THAT(describe(certificate), HasSubstr("not kept the same on all ranks"));
}

TEST(Certificate, ADifferenceOnAMeshHasCoordinatesAndAnAxis) {
  Certificate certificate = some_certificate();
  certificate.plan.ranks = 4;
  certificate.plan.mesh = layout::MeshShape::create({{"dp", 2}, {"tp", 2}}, 4).or_throw();
  certificate.plan.cpus.resize(4);
  FirstDifference& found = certificate.difference.emplace(some_difference());
  found.ranks = {1, 3};
  found.axes = {"tp"};
  found.backward = {.rank = 3, .grain = 4};
  EXPECT_THAT(describe(certificate), HasSubstr(R"(gradient w on ranks 1 (dp=0,tp=1), 3 (dp=1,tp=1)
  axis       tp: without it the ranks are one process
  cause      rank 3 (dp=1,tp=1), grain 4: its own gradients differ)"));
  const auto json = base::parse_json(to_json(certificate)).or_throw()["first_difference"];
  EXPECT_EQ(json["axes"][0], "tp");
  EXPECT_EQ(json["coordinates"][1]["dp"], 1);
  EXPECT_EQ(json["coordinates"][1]["tp"], 1);
  found.axes.clear();
  found.ranks = {0, 1, 2, 3};
  EXPECT_THAT(
      describe(certificate),
      HasSubstr(R"(gradient w on ranks 0 (dp=0,tp=0), 1 (dp=0,tp=1), 2 (dp=1,tp=0), 3 (dp=1,tp=1)
  axis       none: without dp, or without tp there is a difference, too)"));
  found.unknown_axes = {{"tp", "step 2: loss nan"}};
  EXPECT_THAT(describe(certificate), HasSubstr(R"(
  axis       none: without dp there is a difference, too
  axis       tp is not known: without it the job fails: step 2: loss nan)"));
}

/// Of ranks of tp in run.
Certificate within_a_bound() {
  Certificate certificate = some_certificate();
  certificate.plan.config.train.bits = plan::Bits::kRun;
  certificate.plan.config.mesh.tp = 2;
  certificate.plan.mesh = layout::MeshShape::create({{"tp", 2}}, 2).or_throw();
  certificate.farthest = 2.5e-15;
  return certificate;
}

TEST(Certificate, SaysThatItWasJudgedWithinABoundAndWhich) {
  Certificate certificate = within_a_bound();
  const std::string text = describe(certificate);
  EXPECT_THAT(text, HasSubstr(R"(
judged       within 1e-12 of each tensor's largest value
)"));
  EXPECT_THAT(text, HasSubstr("EQUAL within 1e-12 of each tensor's largest value: one process and "
                              "all 2 ranks; the farthest is 2.5e-15 off\n"));
  const auto json = base::parse_json(to_json(certificate)).or_throw();
  EXPECT_EQ(json["verdict"], "equal");
  EXPECT_EQ(json["within"], 1e-12);
  EXPECT_EQ(json["farthest"], 2.5e-15);
  certificate.difference = some_difference();
  EXPECT_THAT(describe(certificate), AllOf(HasSubstr("judged       within 1e-12"),
                                           HasSubstr("whose are wrong is known of bits alone")));
  EXPECT_TRUE(base::parse_json(to_json(some_certificate())).or_throw()["within"].is_null());
}

TEST(Certificate, LongRunsShowTheirEnds) {
  const std::string text = describe(some_certificate(100));
  EXPECT_THAT(text, HasSubstr("  step    9"));
  EXPECT_THAT(text, HasSubstr("...\n  step   91"));
  EXPECT_THAT(text, Not(HasSubstr("  step   50")));
  EXPECT_THAT(text, HasSubstr("  step  100"));
}

TEST(Certificate, JsonHasAHashPerStepAndTheVerdict) {
  Certificate certificate = some_certificate();
  auto json = base::parse_json(to_json(certificate)).or_throw();
  EXPECT_EQ(json["verdict"], "equal");
  EXPECT_EQ(json["bits"], "stable");
  EXPECT_EQ(json["seed"], 1);
  EXPECT_EQ(json["build"], "0.1.0+17");
  EXPECT_EQ(json["plan"]["ranks"], 2);
  EXPECT_EQ(json["steps"].size(), 3u);
  EXPECT_EQ(json["steps"][2]["parameters_sha256"], std::string(64, 'c'));
  EXPECT_EQ(json["steps"][2]["gradients_sha256"].get<std::string>().size(), 64u);
  EXPECT_TRUE(json["first_difference"].is_null());
  certificate.difference = some_difference();
  certificate.difference->distance->largest = std::numeric_limits<double>::quiet_NaN();
  json = base::parse_json(to_json(certificate)).or_throw();
  EXPECT_EQ(json["verdict"], "differs");
  EXPECT_EQ(json["steps"][0]["equal"], true);
  EXPECT_EQ(json["steps"][1]["equal"], false);
  EXPECT_EQ(json["first_difference"]["tensor"], "w");
  EXPECT_TRUE(json["first_difference"]["distance"]["largest"].is_null());
  EXPECT_EQ(json["first_difference"]["distance"]["elements"], 3);
}

}  // namespace
}  // namespace hanji::report
