#include <iostream>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/notify.h"
#include "hanji/cli/verbs.h"
#include "hanji/plan/verifiable.h"
#include "hanji/train/prepare.h"
#include "hanji/train/run_folder.h"
#include "hanji/train/verify.h"
#include "hanji/train/verify_rank.h"

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
      train::prepare(checked.loaded.config, train::Workload{*checked.dataset}).or_throw();
  base::throw_if_error(plan::check_verifiable(plan));
  const auto out =
      train::claim_folder(checked.loaded.config.run.out, train::kVerifyParts).or_throw();
  const report::Certificate certificate =
      train::verify_job(plan, *checked.dataset, {.out = out, .on_event = notify});
  std::cout << report::describe(certificate) << "certificate  "
            << (out / "certificate.json").string() << "\n";
  return certificate.equal() ? 0 : kDiffers;
}

}  // namespace

void add_verify(Verb command) {
  const Verb verb = command.add_verb(
      "verify", "Compare N ranks with one process bit for bit and report the first difference");
  verb.footer(
      "Takes the configuration of `hanji train`; 20 steps unless train.steps or --steps says "
      "otherwise.\nWith train.bits = stable the hashes are those of any number of ranks, with run "
      "those of this plan.\nExit code 0: equal; 7: they differ.");
  auto job = std::make_shared<JobOptions>();
  job->add_to(verb);
  verb.on_chosen([=] { return verify_job(*job); });
}

void add_verify_rank(Verb command) {
  const Verb verb = command.add_verb("verify-rank", "");
  auto options = std::make_shared<train::VerifyRankOptions>();
  auto folder = std::make_shared<std::string>();
  verb.add_option("--folder", folder.get()).required();
  verb.add_option("--keep-step", &options->keep_step);
  verb.add_option("--keep-rank", &options->keep_rank);
  verb.on_chosen([=] {
    options->folder = *folder;
    train::run_verify_rank(*options);
    return 0;
  });
}

}  // namespace hanji::cli
