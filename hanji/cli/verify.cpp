#include <CLI/CLI.hpp>
#include <iostream>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/tell.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/observe_rank.h"
#include "hanji/train/one_process.h"
#include "hanji/train/prepare.h"
#include "hanji/train/run_folder.h"
#include "hanji/train/verify.h"

namespace hanji::cli {
namespace {

/// A difference shows within a few steps or not at all.
constexpr int64_t kSteps = 20;

plan::LoadedConfig load(const JobOptions& job) {
  plan::ConfigSources sources;
  sources.base.train.steps = kSteps;
  return job.load(std::move(sources));
}

int verify_job(const JobOptions& job) {
  plan::LoadedConfig loaded = load(job);
  train::check_engine(loaded, train::StartedBy::kUs);
  const auto checked = train::check_job(std::move(loaded), train::FolderUse::kClaim);
  if (const int code = report_mistakes(checked); code != 0) return code;
  const plan::Plan plan =
      train::prepare(checked.loaded.config, checked.dataset->facts()).or_throw();
  base::throw_if_error(train::check_verifiable(plan));
  const auto out =
      train::claim_folder(checked.loaded.config.run.out, train::kVerifyParts).or_throw();
  const report::Certificate certificate =
      train::verify_job(plan, *checked.dataset, {.out = out, .on_event = tell});
  std::cout << report::describe(certificate) << "certificate  "
            << (out / "certificate.json").string() << "\n";
  return certificate.equal() ? 0 : kDiffers;
}

}  // namespace

void add_verify(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand(
      "verify", "Compare N ranks with one process bit for bit and report the first difference");
  verb->footer(
      "Takes the configuration of `hanji train`; 20 steps unless train.steps or --steps says "
      "otherwise.\nWith train.bits = stable the hashes are those of any number of ranks, with run "
      "those of this plan.\nExit code 0: equal; 7: they differ.");
  auto job = std::make_shared<JobOptions>();
  job->add_to(*verb);
  verb->callback([=, &run] { run = [=] { return verify_job(*job); }; });
}

void add_verify_rank(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand("verify-rank", "")->group("");
  auto options = std::make_shared<train::VerifyRankOptions>();
  auto folder = std::make_shared<std::string>();
  verb->add_option("--folder", *folder)->required();
  verb->add_option("--keep-step", options->keep_step);
  verb->add_option("--keep-rank", options->keep_rank);
  verb->callback([=, &run] {
    run = [=] {
      options->folder = *folder;
      train::run_verify_rank(*options);
      return 0;
    };
  });
}

}  // namespace hanji::cli
