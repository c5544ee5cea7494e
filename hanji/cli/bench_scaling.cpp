#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "hanji/base/clock.h"
#include "hanji/base/text.h"
#include "hanji/cli/bench/side.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/notify.h"
#include "hanji/cli/option_mistakes.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/verbs.h"
#include "hanji/cli/write_drawing.h"
#include "hanji/plan/resume.h"
#include "hanji/report/scaling.h"
#include "hanji/report/verdict.h"
#include "hanji/train/decide_job.h"
#include "hanji/train/launch_job.h"
#include "hanji/train/run_folder.h"

namespace hanji::cli {
namespace {

constexpr int64_t kSteps = 40;
constexpr int kMaxRounds = 100;

struct ScalingOptions {
  JobOptions job;
  std::string like;  ///< Folder of a run.
  std::optional<std::string> svg;
  int rounds = 3;
  bool as_json = false;

  /// Ascending. Adds what is wrong with them.
  std::vector<int> read_ranks(OptionMistakes& mistakes) {
    const std::optional<std::string> given = job.take_ranks();
    if (!given) {
      mistakes.add("scaling needs --ranks, the numbers of ranks to run on; write --ranks 1,2,4");
      return {};
    }
    const std::string& text = *given;
    std::set<int> ranks;
    for (const std::string_view one : base::split(text, ',')) {
      const auto number = parse_int(std::string(one));
      if (number && *number > 0) {
        ranks.insert(*number);
      } else {
        mistakes.add(
            fmt::format("--ranks {}: '{}' is no number of ranks; write --ranks 1,2,4", text, one));
        return {};
      }
    }
    if (ranks.size() < 2) {
      mistakes.add(
          fmt::format("--ranks {}: scaling needs two numbers of ranks; write --ranks 1,2", text));
    }
    return {ranks.begin(), ranks.end()};
  }
};

/// Short runs of one job on several numbers of ranks, interleaved.
class ScalingBench {
 public:
  ScalingBench(const ScalingOptions& options, std::vector<int> ranks, std::filesystem::path folder)
      : options_(options), ranks_(std::move(ranks)), folder_(std::move(folder)) {
    base_.train.steps = kSteps;
    base_.train.evaluate_every = 0;
    base_.train.evaluate_batches = 1;
    base_.checkpoint.every = 0;
  }

  /// Begins with the configuration of a saved run.
  void take_job_of(const plan::Plan& plan) {
    const plan::Config short_run = base_;
    take_decisions(plan);
    cut_ = plan.config;
    cut_.pipeline.micro_batches = plan::kAuto;
    cut_.pipeline.cut.clear();
    base_.train.steps = kSteps;
    base_.train.evaluate_every = short_run.train.evaluate_every;
    base_.train.evaluate_batches = short_run.train.evaluate_batches;
    base_.checkpoint.every = 0;
  }

  /// Checks the job on every number of ranks. Result: the exit code; all mistakes were printed.
  int check() const {
    std::set<std::string> known;
    plan::LoadedConfig all;
    for (const int ranks : ranks_) {
      const plan::LoadedConfig loaded = load(sources(ranks, ""), ranks, "");
      for (const plan::ConfigMistake& one : loaded.mistakes) {
        if (known.insert(one.to_string()).second) all.mistakes.push_back(one);
      }
      const int64_t steps = loaded.config.train.steps;
      if (ranks != ranks_.front() || options_.rounds * (steps - 1) >= report::kMinSteps) continue;
      const auto origin = loaded.origins.find("train.steps");
      all.mistakes.push_back(
          {.origin = origin == loaded.origins.end() ? plan::Origin() : origin->second,
           .key = "train.steps",
           .message =
               fmt::format("{} of {} have {} after their first, where {} are needed",
                           base::counted(options_.rounds, "run"), base::counted(steps, "step"),
                           options_.rounds * (steps - 1), report::kMinSteps),
           .suggestion = "raise train.steps or --rounds"});
    }
    return report_mistakes(all);
  }

  /// Result  0, or the exit code of the run that failed or was stopped.
  int run() {
    const int runs = options_.rounds * static_cast<int>(ranks_.size());
    for (int round = 0; round < options_.rounds; ++round) {
      // Alternating there and back, so that a machine that gets slower favours no size.
      std::vector<int> order = ranks_;
      if (round % 2 == 0) std::ranges::reverse(order);
      for (const int ranks : order) {
        std::cerr << fmt::format("run {} of {}: {}\n", records_.size() + 1, runs,
                                 base::counted(ranks, "rank"));
        if (const int code = run_once(ranks, round); code != 0) return code;
      }
    }
    return 0;
  }

  const std::vector<report::RunRecords>& records() const { return records_; }

 private:
  plan::ConfigSources sources(int ranks, const std::string& out) const {
    plan::ConfigSources sources{.base = base_, .base_source = "hanji bench scaling"};
    sources.base.run.ranks = ranks;
    sources.base.run.out = out;
    // One rank has no mesh; others have that of a saved run, along dp and fsdp as many as there are.
    const plan::MeshConfig& mesh = cut_.mesh;
    if (ranks == 1) return sources;
    for (const auto degree : {&plan::MeshConfig::pp, &plan::MeshConfig::cp, &plan::MeshConfig::tp,
                              &plan::MeshConfig::axial}) {
      sources.base.mesh.*degree = mesh.*degree;
    }
    if (mesh.dp > 1 && mesh.fsdp > 1) sources.base.mesh.fsdp = mesh.fsdp;
    sources.base.pipeline = cut_.pipeline;
    sources.base.parallel.sequence = cut_.parallel.sequence;
    return sources;
  }

  plan::LoadedConfig load(plan::ConfigSources sources, int ranks, const std::string& out) const {
    plan::LoadedConfig loaded = options_.job.load(std::move(sources));
    loaded.config.run.ranks = ranks;
    loaded.config.run.out = out;
    return loaded;
  }

  /// All runs have the kernels, threads and buckets that the first one has chosen.
  void take_decisions(const plan::Plan& plan) {
    base_ = plan::resume_base(plan.config);
    base_.train.micro_batch = plan::kAuto;
    base_.compute.threads = plan.threads;
  }

  int run_once(int ranks, int round) {
    const int64_t started_ns = base::now_ns();
    const std::string out = (folder_ / fmt::format("ranks_{}.run_{}", ranks, round + 1)).string();
    const train::DecidedJob decided = train::decide_job(
        {.load = [&](plan::ConfigSources) { return load(sources(ranks, out), ranks, out); },
         .print = [](std::string_view) {}});
    if (const int code = report_mistakes(decided.checked); code != 0) return code;
    const train::JoinedJob& job = *decided.job;
    if (records_.empty()) take_decisions(job.plan);
    const launch::Outcome outcome =
        train::launch_job(job.plan, {.out = job.out,
                                     .started_ns = started_ns,
                                     .rank0_output = launch::Rank0Output::kLog,
                                     .on_event = notify})
            .or_throw();
    if (outcome.stop_signal != 0) return stop_code(outcome.stop_signal);
    if (outcome.exit_code != 0) return outcome.exit_code;
    records_.push_back(report::read_run(out).or_throw());
    return 0;
  }

  const ScalingOptions& options_;
  std::vector<int> ranks_;
  std::filesystem::path folder_;
  plan::Config base_;
  plan::Config cut_;  ///< How a saved run cuts its model; else the defaults.
  std::vector<report::RunRecords> records_;
};

int run_scaling(ScalingOptions& options) {
  OptionMistakes mistakes;
  const std::vector<int> ranks = options.read_ranks(mistakes);
  mistakes.throw_if_any();
  const std::optional<std::string> out = options.job.take_out();
  std::optional<BenchFolder> temporary;
  ScalingBench checked(options, ranks, "");
  std::optional<plan::Plan> like;
  if (!options.like.empty()) like = report::read_run(options.like).or_throw().plan;
  if (like) checked.take_job_of(*like);
  if (const int code = checked.check(); code != 0) return code;
  if (!out) temporary.emplace(BenchFolder::make().or_throw());
  const std::filesystem::path folder =
      temporary ? temporary->path() : train::claim_folder(*out).or_throw();
  ScalingBench bench(options, ranks, folder);
  if (like) bench.take_job_of(*like);
  if (const int code = bench.run(); code != 0) return code;
  const report::ScalingStudy study = report::study_scaling(bench.records()).or_throw();
  if (options.svg) write_drawing(*options.svg, report::scaling_svg(study));
  print_text(
      options.as_json ? report::scaling_json(study) : report::scaling_text(study, output_columns()),
      options.as_json);
  return 0;
}

}  // namespace

void add_bench_scaling(Verb bench_verb) {
  const Verb verb = bench_verb.add_verb(
      "scaling", "How a job scales: interleaved short runs on 1, 2, ... ranks, and their report");
  auto options = std::make_shared<ScalingOptions>();
  options->job.add_to(verb, {.ranks = "numbers of ranks to run on",
                             .ranks_type = "N,N,...",
                             .out = "new or empty folder to keep the runs; default: they go"});
  verb.add_option("--like", &options->like, "the job of the run in this folder").type_name("DIR");
  verb.add_option("--rounds", &options->rounds, "runs of each number of ranks")
      .type_name("N")
      .range(1, kMaxRounds)
      .show_default();
  verb.add_option("--svg", &options->svg, "the speed-up as an SVG").type_name("FILE");
  verb.add_flag("--json", &options->as_json, "for programs");
  verb.on_chosen([=] { return run_scaling(*options); });
}

}  // namespace hanji::cli
