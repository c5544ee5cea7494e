#include "hanji/report/report_page.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>

#include "hanji/base/file.h"
#include "hanji/report/internal/page_style.h"
#include "hanji/report/test_run.h"

namespace hanji::report {
namespace {

using internal::contrast_ratio;
using internal::PictureClass;
using testing::HasSubstr;
using testing::Not;

/// All parts of a page: an ended run with a slow rank, slow samples, restarts, warnings, curves.
/// Without noise, so that golden bytes depend on no library's random numbers.
RunRecords full_run(int ranks, int64_t steps, double noise = 0) {
  const auto own = [](int rank, int64_t step) {
    const double compute = (rank == 1 ? 0.13 : 0.1) + 0.001 * static_cast<double>(step % 5);
    return test_run::Own{.compute = compute, .data = step % 7 == 0 ? 0.02 : 1e-4};
  };
  RunRecords run = test_run::make({.ranks = ranks, .steps = steps, .noise = noise, .own = own});
  run.plan.job_hash = "0123456789abcdef";  // which follows every key that there is
  for (RankSteps& rank : run.ranks) {
    for (StepAccount& one : rank.accounts) one.memory_bytes = 13'000'000 + 1000 * rank.rank;
  }
  for (int64_t step = 1; step <= steps; ++step) {
    run.log.train_losses.push_back({step, 5.0 / static_cast<double>(step + 1) + 1});
  }
  run.log.validation_losses = {{steps / 2, 2.5}, {steps, 2.25}};
  run.log.resumptions = {{.step = 5, .ranks = ranks}};
  run.log.warnings = {{.step = 6, .text = "<script>alert(\"1\")</script> & more"}};
  run.certificate = R"({"verdict":"equal","bits":"run","ranks":2,"steps_run":3})";
  run.summary =
      R"({"train_loss":1.5,"validation_loss":2.25,"skipped_steps":1,"steps_without_targets":0,
      "peak_bytes":[20000000,60000000],"step_seconds_median":0.13,
      "checkpoint":{"saves":2,"failed_saves":0,"blocked_seconds_median":0.01,"blocked_seconds_max":0.02,
                    "write_seconds_median":0.1},
      "prediction":{"step_seconds":{"predicted":0.1,"measured":0.13},
                    "skew_seconds":{"predicted":null,"measured":0.01},
                    "memory.activations":{"predicted":1048576,"measured":null}}})";
  return run;
}

std::string page_of(const RunRecords& run) {
  std::vector<StepTimeline> timelines = read_timelines(run);
  timelines.at(0).is_traced = true;
  timelines[0].note.clear();
  timelines[0].ranks = {{0,
                         {{SpanKind::kForward, 0, 0.04},
                          {SpanKind::kBackward, 0.04, 0.11},
                          {SpanKind::kOptimizer, 0.11, 0.12},
                          {SpanKind::kData, 0.12, 0.13},
                          {SpanKind::kTransfer, 0.05, 0.1},
                          {SpanKind::kSkew, 0.08, 0.1}}}};
  return report_page(run, timelines);
}

/// The values of `attribute` of elements `tag`.
std::set<std::string> classes_of(const std::string& page, const std::string& tag) {
  std::set<std::string> found;
  const std::regex pattern("<" + tag + " class=\"([^\"]*)\"");
  for (std::sregex_iterator at(page.begin(), page.end(), pattern), end; at != end; ++at) {
    const std::string names = (*at)[1];
    found.insert(names.substr(0, names.find(' ')));
  }
  return found;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ReportPage, IsTheSameBytesAsTheGoldenFile) {
  const std::string page = page_of(full_run(2, 30));
  const std::filesystem::path golden = HANJI_GOLDEN_PAGE;
  if (std::getenv("HANJI_WRITE_GOLDEN") != nullptr) {
    ASSERT_TRUE(base::write_file_atomic(golden, page).ok());
  }
  EXPECT_EQ(page, base::read_file(golden).or_throw()) << "if this is meant: HANJI_WRITE_GOLDEN=1";
}

TEST(ReportPage, IsTheSameBytesTwice) {
  EXPECT_EQ(page_of(full_run(4, 700)), page_of(full_run(4, 700)));
}

TEST(ReportPage, HasNoScriptNoNetworkAndOneHeading) {
  const std::string page = page_of(full_run(2, 30));
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>\n<html lang=\"en\">"));
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(\"1\")&lt;/script&gt; &amp; more"));
  EXPECT_THAT(page, Not(testing::ContainsRegex("https?://|src=|href=|@import| on[a-z]+=\"")));
  EXPECT_EQ(count_of(page, "<h1>"), 1u);
  EXPECT_EQ(count_of(page, "<main>"), 1u);
  EXPECT_EQ(count_of(page, "<table"), count_of(page, "<caption>"));
  EXPECT_EQ(count_of(page, "role=\"img\""),
            count_of(page, "<title>step") + count_of(page, "<title>seconds of each step") +
                count_of(page, "<title>loss over") + count_of(page, "<title>bytes of tensors"));
}

TEST(ReportPage, NumbersAreNeverMinusZeroOrNoNumbers) {
  const std::string page = page_of(full_run(3, 200));
  EXPECT_THAT(page, Not(testing::ContainsRegex("[ >hvMLV]-0(\\.0)?[ <hvz]")));
  EXPECT_THAT(page, Not(testing::ContainsRegex("\\bnan\\b|\\binf\\b")));
}

/// So many spans as read_timelines() leaves of a step, of each kind on each rank.
StepTimeline dense_timeline(int ranks) {
  StepTimeline timeline{.step = 7, .seconds = 1, .is_traced = true};
  for (int rank = 0; rank < ranks; ++rank) {
    RankTimeline line{.rank = rank};
    for (const SpanKind kind : {SpanKind::kForward, SpanKind::kTransfer, SpanKind::kSkew}) {
      for (int i = 0; i < 500; ++i) line.spans.push_back({kind, 0.002 * i, 0.002 * i + 0.001});
    }
    timeline.ranks.push_back(std::move(line));
  }
  return timeline;
}

TEST(ReportPage, OfAThousandStepsOnEightRanksStaysBelowTwoMegabytes) {
  const RunRecords run = full_run(8, 1000, 0.2);
  const std::string page = report_page(run, {dense_timeline(8), dense_timeline(8)});
  EXPECT_LT(page.size(), size_t{2'000'000});
  EXPECT_GT(page.size(), size_t{400'000}) << "no noise, no spans: the bound is not tried";
  RecordProperty("bytes", std::to_string(page.size()));
}

TEST(ReportPage, BeginsWithTheVerdict) {
  const std::string page = page_of(full_run(2, 60));
  EXPECT_LT(page.find("longer than the others"), page.find("What ran"));
  EXPECT_THAT(page, HasSubstr("2 ranks train as one process over 3 steps, bits = run"));
}

TEST(ReportPage, WhatWasNotMeasuredIsSaid) {
  RunRecords run = full_run(2, 30);
  run.summary = run.certificate = "";
  run.log = {};
  for (RankSteps& rank : run.ranks) {
    for (StepAccount& one : rank.accounts) one.skew = one.exposed_transfer = std::nullopt;
  }
  const std::string page = report_page(run, read_timelines(run));
  EXPECT_THAT(page, HasSubstr("not measured: the engine"));
  EXPECT_THAT(page, HasSubstr("Not measured by part"));
  EXPECT_THAT(page, HasSubstr("together, which the engine does not tell apart"));
  EXPECT_THAT(page, HasSubstr("computing has moving bytes and waiting for ranks in it"));
  EXPECT_THAT(page, HasSubstr("Not measured: run.jsonl has no two steps with a loss."));
  EXPECT_THAT(page, HasSubstr("Not measured: the run has not ended."));
  EXPECT_THAT(page, HasSubstr("none lies in the folder; hanji verify makes one"));
  run.ranks.clear();
  EXPECT_THAT(report_page(run, {}), HasSubstr("Not measured: no account of two steps"));
}

TEST(ReportPage, ShowsTheOperationsOfProfiledSteps) {
  RunRecords run = full_run(2, 30);
  EXPECT_THAT(page_of(run), Not(HasSubstr("Operations")));
  run.operations = {{.roof = {1e11, 2e10},
                     .seconds = 0.1,
                     .rows = {{"aten::mm", 0, "forward", 4, 0.08, 4e9, 40'000'000, 0}}}};
  const std::string page = page_of(run);
  EXPECT_THAT(page, HasSubstr("Roofline of rank 0"));
  EXPECT_THAT(page, HasSubstr("aten::mm"));
  EXPECT_THAT(page, HasSubstr("80.0 %"));
}

TEST(ReportPage, ShowsWhatALastFailureWas) {
  RunRecords run = full_run(2, 30);
  run.flight = R"({"wall_ns":1,"text":"rank 1 was killed by signal 9\n\nrank  state\n"})";
  EXPECT_THAT(page_of(run), HasSubstr("<pre>rank 1 was killed by signal 9\n"));
}

TEST(ReportPage, EveryTextAndShapeOfAPictureHasAClassWhoseContrastIsKnown) {
  const std::string page = page_of(full_run(2, 700));
  std::set<std::string> texts, shapes;
  for (const PictureClass& one : internal::picture_classes()) {
    (one.least_contrast >= 4.5 ? texts : shapes).emplace(one.name);
  }
  shapes.insert({"skew-line", "data-line"});  // stripes of skew and data, in their colours
  for (const std::string& one : classes_of(page, "text")) EXPECT_TRUE(texts.contains(one)) << one;
  for (const char* tag : {"path", "rect"}) {
    for (const std::string& one : classes_of(page, tag)) EXPECT_TRUE(shapes.contains(one)) << one;
  }
  EXPECT_EQ(count_of(page, "<text "), count_of(page, "<text class="));
  EXPECT_EQ(count_of(page, "<path "), count_of(page, "<path class="));
  EXPECT_THAT(page, Not(testing::ContainsRegex("fill=\"|stroke=\"|style=\"")));
}

TEST(ReportPage, ContrastOfPicturesIsEnoughInBothSchemes) {
  EXPECT_NEAR(contrast_ratio("#ffffff", "#000000"), 21, 1e-9);
  EXPECT_NEAR(contrast_ratio("#767676", "#ffffff"), 4.54, 0.005) << "WCAG's own example";
  for (const PictureClass& one : internal::picture_classes()) {
    const auto front = colours_of(one.colour), back = colours_of(one.on);
    EXPECT_GE(contrast_ratio(front.light, back.light), one.least_contrast) << one.name;
    EXPECT_GE(contrast_ratio(front.dark, back.dark), one.least_contrast) << one.name;
  }
}

}  // namespace
}  // namespace hanji::report
