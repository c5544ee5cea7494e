#include "hanji/report/scaling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "hanji/base/units.h"
#include "hanji/plan/schema.h"
#include "hanji/report/step_lines.h"
#include "hanji/report/verdict.h"

namespace hanji::report {
namespace {

constexpr int kMaxCurve = 64;     // Numbers of ranks that are drawn.
constexpr double kSteady = 1e-9;  // Of a batch per rank.

/// Tables and keys that follow from the number of ranks, or change no step.
constexpr std::array<std::string_view, 4> kFreeTables = {"run.", "mesh.", "pipeline.",
                                                         "checkpoint."};
constexpr std::array<std::string_view, 20> kFreeKeys = {
    "train.steps",          "train.warmup_steps",
    "train.global_batch",   "train.micro_batch",
    "train.split",          "train.log_every",
    "train.evaluate_every", "train.evaluate_batches",
    "data.workers",         "data.prefetch",
    "parallel.reshard",     "parallel.share_memory",
    "parallel.sequence",    "parallel.context",
    "parallel.triangle",    "parallel.moves",
    "comm.engine",          "comm.link_bytes_per_second",
    "comm.link_latency",    "compute.threads"};

bool may_differ(std::string_view key) {
  return std::ranges::any_of(kFreeTables, [&](auto table) { return key.starts_with(table); }) ||
         std::ranges::find(kFreeKeys, key) != kFreeKeys.end();
}

bool is_pinned(const plan::Plan& plan) {
  return std::ranges::any_of(plan.cpus, [](const auto& one) { return !one.empty(); });
}

/// A run, and its steps on all ranks.
struct SizedRun {
  explicit SizedRun(const RunRecords& records) : run(records), lines(step_lines(records)) {
    for (const StepLine& line : lines) steps += line.steps;
  }
  const RunRecords& run;
  std::vector<StepLine> lines;
  int64_t steps = 0;
};

/// All that is wrong with the runs, each in one line.
class Mistakes {
 public:
  explicit Mistakes(const std::vector<SizedRun>& runs) : runs_(runs) {}

  std::vector<std::string> find() {
    std::set<int> sizes;
    for (const SizedRun& one : runs_) sizes.insert(one.run.plan.ranks);
    if (sizes.size() < 2) {
      add("runs on {} are no scaling; name runs of the same job on two or more numbers of ranks",
          sizes.empty() ? "no rank" : base::counted(*sizes.begin(), "rank"));
    }
    for (const SizedRun& one : runs_) {
      compare_jobs(one.run, runs_.front().run);
      if (std::ssize(one.run.ranks) == one.run.plan.ranks) continue;
      add("{}: records of {} of {} lie here; copy those of the other hosts into {}",
          one.run.folder.string(), one.run.ranks.size(), base::counted(one.run.plan.ranks, "rank"),
          (one.run.folder / kAccountFolder).string());
    }
    for (const int ranks : sizes) check_steps(ranks);
    if (!has_equal_batches() && !has_growing_batches()) {
      add("train.global_batch is neither the same in all runs nor grows with their ranks: {}",
          batches());
    }
    return std::move(found_);
  }

  bool has_equal_batches() const {
    return std::ranges::all_of(
        runs_, [&](const SizedRun& one) { return batch_of(one) == batch_of(runs_.front()); });
  }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> text, Values&&... values) {
    found_.push_back(fmt::format(text, std::forward<Values>(values)...));
  }

  void check_steps(int ranks) {
    int64_t steps = 0;
    for (const SizedRun& one : runs_) steps += one.run.plan.ranks == ranks ? one.steps : 0;
    if (steps >= kMinSteps) return;
    add("runs on {} have {} after their first, where {} are needed; raise train.steps",
        base::counted(ranks, "rank"), base::counted(steps, "step"), kMinSteps);
  }

  static int64_t batch_of(const SizedRun& one) { return one.run.plan.config.train.global_batch; }

  static double batch_per_rank(const SizedRun& one) {
    return static_cast<double>(batch_of(one)) / one.run.plan.ranks;
  }

  bool has_growing_batches() const {
    const double first = batch_per_rank(runs_.front());
    return std::ranges::all_of(runs_, [&](const SizedRun& one) {
      return std::abs(batch_per_rank(one) / first - 1) < kSteady;
    });
  }

  std::string batches() const {
    std::vector<std::string> all;
    for (const SizedRun& one : runs_) {
      all.push_back(
          fmt::format("{} on {}", batch_of(one), base::counted(one.run.plan.ranks, "rank")));
    }
    return fmt::format("{}", fmt::join(all, ", "));
  }

  void compare_jobs(const RunRecords& run, const RunRecords& first) {
    const auto differ = [&](std::string_view key, const std::string& here,
                            const std::string& there) {
      if (here == there) return;
      add("{}: {} is {}, and {} in {}; scaling compares runs of one job", run.folder.string(), key,
          here, there, first.folder.string());
    };
    for (const plan::Key& key : plan::schema()) {
      if (may_differ(key.name)) continue;
      differ(key.name, plan::format_value(key, key.get(run.plan.config)),
             plan::format_value(key, key.get(first.plan.config)));
    }
    differ("compute.threads", std::to_string(run.plan.threads), std::to_string(first.plan.threads));
  }

  const std::vector<SizedRun>& runs_;
  std::vector<std::string> found_;
};

bool has_told_parts(const SizedRun& one) {
  return !series_of(one.lines, StepPart::kSkew).empty() &&
         !series_of(one.lines, StepPart::kCompute).empty();
}

ScalingSeries series_of_run(const SizedRun& one, bool has_parts) {
  ScalingSeries series{.ranks = one.run.plan.ranks, .steps = {}};
  const Series step = series_of(one.lines, StepPart::kStep);
  if (!has_parts) {
    for (const double seconds : step) series.steps.push_back({.compute = seconds});
    return series;
  }
  const Series transfer = series_of(one.lines, StepPart::kTransfer);
  const Series skew = series_of(one.lines, StepPart::kSkew);
  for (size_t i = 0; i < step.size(); ++i) {
    series.steps.push_back({step[i] - transfer[i] - skew[i], transfer[i], skew[i]});
  }
  return series;
}

std::vector<ScalingSize> sizes_of(const std::vector<SizedRun>& runs,
                                  const std::vector<ScalingSeries>& series) {
  std::vector<ScalingSize> sizes;
  for (const ScalingPoint& point : scaling_points(series)) {
    ScalingSize size{.point = point};
    std::vector<StepLine> lines;
    bool are_pinned = true;
    for (const SizedRun& one : runs) {
      if (one.run.plan.ranks != point.ranks) continue;
      ++size.runs;
      size.steps += one.steps;
      are_pinned = are_pinned && is_pinned(one.run.plan);
      lines.insert(lines.end(), one.lines.begin(), one.lines.end());
    }
    size.cpu_share = cpu_share(lines);
    size.is_fitted = are_pinned || size.cpu_share >= kLeastCpuShare;
    sizes.push_back(size);
  }
  return sizes;
}

/// Where too few sizes have a core for each rank, all are fitted, and doubted.
void keep_enough(ScalingStudy& study) {
  if (std::ranges::count(study.sizes, true, &ScalingSize::is_fitted) >= 2) return;
  for (ScalingSize& size : study.sizes) {
    if (size.is_fitted) continue;
    size.is_fitted = true;
    study.doubts.push_back(fmt::format(
        "{} had CPUs for {:.0f} % of what they computed: they outnumber the cores, which is no "
        "measure of the job",
        base::counted(size.point.ranks, "rank"), 100 * size.cpu_share));
  }
}

/// Doubts sizes whose ranks have cores of their own and lost time on them.
void doubt_stolen_time(ScalingStudy& study) {
  for (const ScalingSize& size : study.sizes) {
    if (!size.is_fitted || size.cpu_share >= kLeastCpuShare) continue;
    study.doubts.push_back(
        fmt::format("other processes took {:.0f} % of the time in which {} computed; measure again "
                    "without them",
                    100 * (1 - size.cpu_share), base::counted(size.point.ranks, "rank")));
  }
}

void doubt_misses(ScalingStudy& study) {
  for (const ScalingSize& size : study.sizes) {
    if (!size.is_fitted) continue;
    const double seconds = size.point.step.compute;
    const double by_law = study.law.compute(size.point.ranks) +
                          (study.has_parts ? 0 : study.law.transfer(size.point.ranks));
    const double miss = seconds / by_law - 1;
    if (std::abs(miss) <= kMaxMiss) continue;
    study.doubts.push_back(fmt::format(
        "{} compute{} {} a step where the law has {} ({:+.0f} %); cores that share memory "
        "bandwidth or clocks, or other processes, do that",
        base::counted(size.point.ranks, "rank"), size.point.ranks == 1 ? "s" : "",
        base::format_seconds(seconds), base::format_seconds(by_law), 100 * miss));
  }
}

void add_speed_ups(ScalingStudy& study) {
  const auto one = std::ranges::find(study.sizes, 1, [](const auto& s) { return s.point.ranks; });
  const double alone =
      one != study.sizes.end() && one->is_fitted ? one->point.step.seconds() : study.law.seconds(1);
  for (ScalingSize& size : study.sizes) {
    const double times = alone / size.point.step.seconds();
    size.speed_up = study.batch == BatchRule::kFixed ? times : times * size.point.ranks;
  }
}

void add_curve(ScalingStudy& study, const std::vector<ScalingLaw>& laws) {
  int most = 1;
  for (const ScalingSize& size : study.sizes) {
    if (size.is_fitted) most = std::max(most, size.point.ranks);
  }
  std::set<int> drawn;
  for (int i = 0; i < kMaxCurve; ++i) drawn.insert(1 + (2 * most - 1) * i / (kMaxCurve - 1));
  for (const ScalingSize& size : study.sizes) {
    if (size.point.ranks < 2 * most) drawn.insert(size.point.ranks);
  }
  for (const int ranks : drawn) {
    study.curve.push_back(
        {ranks, study.law.speed_up(ranks), speed_up_interval(laws, ranks), study.law.bound(ranks)});
  }
}

std::string shares_text(const ScalingStudy& study, int ranks) {
  const ScalingLaw& law = study.law;
  const double all = law.seconds(ranks);
  std::string text = fmt::format("of its step {:.0f} % is work that ranks share",
                                 100 * (law.compute(ranks) - law.serial) / all);
  const auto add = [&](double seconds, std::string_view what) {
    if (seconds > 0.005 * all) text += fmt::format(", {:.0f} % {}", 100 * seconds / all, what);
  };
  add(law.serial, "is done by every rank");
  add(law.transfer(ranks), study.has_parts ? "moves bytes" : "grows with the ranks");
  add(law.skew(ranks), "waits");
  return text;
}

std::string sentence_of(const ScalingStudy& study) {
  if (!study.doubts.empty()) {
    return fmt::format("no forecast, because the law does not hold: {}",
                       fmt::join(study.doubts, "; "));
  }
  const ScalingForecast& twice = study.forecast();
  std::string text = fmt::format(
      "{} would be {:.2f} times as fast as one (90 %: {:.2f} to {:.2f}), an efficiency of {:.0f} "
      "%; {}",
      base::counted(twice.ranks, "rank"), twice.speed_up, twice.interval.low, twice.interval.high,
      100 * twice.speed_up / twice.ranks, shares_text(study, twice.ranks));
  const int best = study.law.best_ranks(2 * twice.ranks);
  if (study.batch == BatchRule::kFixed && best < 2 * twice.ranks) {
    text += fmt::format("; a step is shortest with {}", base::counted(best, "rank"));
  }
  if (std::ranges::count(study.sizes, true, &ScalingSize::is_fitted) == 2) {
    text += "; two numbers of ranks fit any such law, a third would check it";
  }
  return text;
}

std::string job_of(const plan::Plan& plan) {
  return fmt::format("{}, {}, parallel.data = {}, {} a rank", plan.config.model.preset,
                     plan::name_of(plan.kernels.precision),
                     plan::name_of(plan.config.parallel.data),
                     base::counted(plan.threads, "thread"));
}

}  // namespace

Result<ScalingStudy> study_scaling(const std::vector<RunRecords>& records) {
  std::vector<SizedRun> runs(records.begin(), records.end());
  Mistakes mistakes(runs);
  const std::vector<std::string> found = mistakes.find();
  if (!found.empty()) {
    return base::invalid_argument(fmt::format("{}", fmt::join(found, "\n")));
  }
  const plan::Plan& fewest =
      std::ranges::min_element(runs, {}, [](const auto& r) { return r.run.plan.ranks; })->run.plan;
  ScalingStudy study{.job = job_of(fewest),
                     .global_batch = fewest.config.train.global_batch,
                     .has_parts = std::ranges::all_of(runs, has_told_parts)};
  if (!mistakes.has_equal_batches()) study.batch = BatchRule::kGrows;
  std::vector<ScalingSeries> series;
  for (const SizedRun& one : runs) series.push_back(series_of_run(one, study.has_parts));
  study.sizes = sizes_of(runs, series);
  doubt_stolen_time(study);
  keep_enough(study);
  std::vector<ScalingPoint> points;
  for (const ScalingSize& size : study.sizes) {
    if (size.is_fitted) points.push_back(size.point);
  }
  std::erase_if(series, [&](const ScalingSeries& one) {
    return std::ranges::find(points, one.ranks, &ScalingPoint::ranks) == points.end();
  });
  study.law = fit_scaling(points, study.batch, study.has_parts);
  add_speed_ups(study);
  add_curve(study, resampled_laws(series, study.batch, study.has_parts));
  if (study.doubts.empty()) doubt_misses(study);
  study.sentence = sentence_of(study);
  return study;
}

}  // namespace hanji::report
