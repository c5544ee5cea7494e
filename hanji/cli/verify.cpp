#include <iostream>

#include "hanji/cli/exit_code.h"
#include "hanji/cli/job_options.h"
#include "hanji/cli/notify.h"
#include "hanji/cli/timing_notice.h"
#include "hanji/cli/verbs.h"
#include "hanji/train/decide_job.h"
#include "hanji/train/verify.h"
#include "hanji/train/verify_rank.h"

namespace hanji::cli {
namespace {

int verify_job(const JobOptions& options) {
  const train::DecidedJob decided = train::decide_job(
      {.load = [&](plan::ConfigSources sources) { return options.load(std::move(sources)); },
       .purpose = train::Purpose::kVerify,
       .on_timing = timing_notice()});
  if (const int code = report_mistakes(decided.checked); code != 0) return code;
  const train::JoinedJob& job = *decided.job;
  const report::Certificate certificate =
      train::verify_job(job.plan, *decided.checked.dataset, {.out = job.out, .on_event = notify});
  std::cout << report::describe(certificate) << "certificate  "
            << (job.out / "certificate.json").string() << "\n";
  return certificate.equal() ? 0 : kDiffers;
}

}  // namespace

void add_verify(Verb command) {
  const Verb verb = command.add_verb(
      "verify", "Compare N ranks with one process bit for bit and report the first difference");
  verb.footer(
      "Takes the configuration of `hanji train`; 20 steps unless train.steps or --steps says "
      "otherwise.\nWith train.bits = stable the hashes are those of any number of ranks, with run "
      "those of this plan.\nRanks that sum in another order (mesh.tp, cp, axial, pp in run) are "
      "compared "
      "within 1e-12 with\ncompute.dtype = float64 and train.epsilon = 1.\nExit code 0: equal; 7: "
      "they differ.");
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
