#include <unistd.h>

#include <iostream>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/long_verb.h"
#include "hanji/cli/notify.h"
#include "hanji/cli/print_text.h"
#include "hanji/cli/timing_notice.h"
#include "hanji/cli/verbs.h"
#include "hanji/launch/environment.h"
#include "hanji/train/decide_job.h"
#include "hanji/train/launch_job.h"

namespace hanji::cli {
namespace {

constexpr const char* kNothingSaved =
    "hanji: interrupted while no rank ran; start again, with --resume if the folder is there\n";

/// What the flags of this verb say beside the job.
struct TrainFlags {
  bool print_config = false;
  bool resume = false;
  int max_restarts = 0;
  int64_t started_ns = 0;
  std::optional<train::StartedRanks> started;  ///< By another launcher, this process among them.
};

/// What there is to do, printed.
train::DecidedJob decide(const JobOptions& job, const TrainFlags& flags) {
  return train::decide_job({.load = [&](plan::ConfigSources sources) { return job.load(sources); },
                            .resume = flags.resume,
                            .started = flags.started,
                            .print = [](std::string_view text) { std::cout << text << std::flush; },
                            .on_timing = timing_notice()});
}

/// Starts the ranks of this host, keeping the folder as long as they live.
int launch_job(const JobOptions& options, const TrainFlags& flags) {
  const std::string nesting = launch::detect().or_throw().nesting;  // of a launcher of one process
  if (!nesting.empty()) std::cerr << "hanji: " << nesting << "\n";
  const train::DecidedJob decided = decide(options, flags);
  if (const int code = report_mistakes(decided.checked); code != 0 || !decided.job) return code;
  const train::JoinedJob& job = *decided.job;
  return train::launch_job(job.plan,
                           {.out = job.out,
                            .started_ns = flags.started_ns,
                            .resume_from = job.resume_from,
                            .max_restarts = flags.max_restarts,
                            .terminal_columns = isatty(STDOUT_FILENO) != 0 ? output_columns() : 0,
                            .on_event = notify})
      .or_throw()
      .exit_code;
}

/// Is one of the ranks that another launcher has started. Rank 0 decides and prints for all.
int join_job(const JobOptions& job, const TrainFlags& flags) {
  if (flags.max_restarts > 0) {
    throw Error(base::unsupported(
        "--max-restarts: these ranks were started by another launcher, which alone can start them "
        "again: give it the option, and hanji train --resume"));
  }
  const auto by_first = [&](const train::MetRanks& met) {
    std::cout << met.description << "\n";
    TrainFlags known = flags;
    known.started->ranks_per_host = met.ranks_per_host;
    known.started->link = met.link;
    train::DecidedJob decided = decide(job, known);
    return train::Decision{report_mistakes(decided.checked), std::move(decided.job)};
  };
  train::RankOptions options{.out = "", .started_ns = flags.started_ns};
  options.output.write = [](std::string_view text) { std::cout << text << std::flush; };
  const train::JoinedOutcome outcome = train::run_joined(by_first, std::move(options));
  return outcome.exit_code != 0 ? outcome.exit_code : stop_code(outcome.rank.stop_signal);
}

}  // namespace

void add_train(Verb command) {
  const Verb verb = command.add_verb("train", "Train a GPT on your text with one rank per core");
  verb.footer(
      "Axes of --mesh, outer to inner: pp cuts layers, dp and fsdp samples (fsdp state as well), "
      "cp "
      "tokens, tp features or, in its place, axial rows of pairs.\n"
      "Every key with its meaning: hanji plan --keys. What a job would need, without a start: "
      "hanji plan, hanji plan --meshes.");
  auto job = std::make_shared<JobOptions>();
  auto flags = std::make_shared<TrainFlags>();
  job->add_to(verb);
  verb.add_flag("--print-config", &flags->print_config,
                "print every key with its origin, and stop");
  verb.add_flag("--resume", &flags->resume,
                "go on with the run in --out from its newest good checkpoint");
  verb.add_option("--max-restarts", &flags->max_restarts,
                  "start again from the last checkpoint when a rank fails, at most so often")
      .type_name("N")
      .not_negative();
  flags->started_ns = base::now_ns();
  verb.on_chosen([=] {
    if (!flags->print_config) {
      end_at_signals(kNothingSaved);
      flags->started = train::find_started_ranks().or_throw();
      return flags->started ? join_job(*job, *flags) : launch_job(*job, *flags);
    }
    const plan::LoadedConfig loaded = job->load();
    return print_with_origins(loaded);
  });
}

}  // namespace hanji::cli
