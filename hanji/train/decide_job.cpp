#include "hanji/train/decide_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/base/env.h"
#include "hanji/base/units.h"
#include "hanji/plan/nccl_variables.h"
#include "hanji/plan/resume.h"
#include "hanji/plan/verifiable.h"
#include "hanji/train/prepare.h"
#include "hanji/train/resume.h"
#include "hanji/train/run_folder.h"
#include "hanji/train/verify.h"

namespace hanji::train {
namespace {

/// A difference shows within a few steps or not at all.
constexpr int64_t kVerifiedSteps = 20;

/// Ranks that are there already are as many as they are.
void count_ranks(plan::LoadedConfig& loaded, const JobRequest& request) {
  if (!request.started) return;
  int64_t& ranks = loaded.config.run.ranks;
  const bool was_asked = loaded.origins.contains("run.ranks") && ranks != plan::kAuto;
  if (was_asked && ranks != request.started->ranks) {
    plan::ConfigMistake& mistake = loaded.mistakes.emplace_back();
    mistake.key = "run.ranks";
    mistake.origin = loaded.origins.find("run.ranks")->second;
    mistake.message = fmt::format("run.ranks is {}, but the launcher of these ranks has started {}",
                                  ranks, request.started->ranks);
    mistake.suggestion = "leave it out";
  }
  if (!was_asked) loaded.origins["run.ranks"].source = "the launcher of these ranks";
  ranks = request.started->ranks;
}

plan::LoadedConfig load_request(const JobRequest& request, plan::ConfigSources sources) {
  // The mesh is compared with them while the configuration is read.
  if (request.started) sources.base.run.ranks = request.started->ranks;
  plan::LoadedConfig loaded = request.load(std::move(sources));
  count_ranks(loaded, request);
  check_engine(loaded, request.started ? StartedBy::kLauncher : StartedBy::kUs);
  return loaded;
}

CheckedJob check_request(plan::LoadedConfig loaded, const JobRequest& request) {
  const FolderUse use = request.resume ? FolderUse::kNone : FolderUse::kClaim;
  return check_job(std::move(loaded), use, request.own);
}

void print(const JobRequest& request, JoinedJob& job) {
  job.plan.config.run.out = job.out.string();
  for (const std::string& line :
       plan::overridden_variables(job.plan.config, base::read_environment())) {
    request.print("note: " + line + "\n");
  }
  request.print(plan::describe(job.plan) + "\n");
}

DecidedJob begin(plan::LoadedConfig loaded, const JobRequest& request) {
  DecidedJob decided{.checked = check_request(std::move(loaded), request), .job = {}};
  if (decided.checked.code != Code::kOk) return decided;
  const plan::Config& config = decided.checked.loaded.config;
  const Workload workload = request.own ? *request.own : Workload{*decided.checked.dataset};
  JoinedJob& job = decided.job.emplace();
  job.plan = prepare(config, workload, request.started, request.on_timing).or_throw();
  if (request.purpose == Purpose::kVerify) {
    base::throw_if_error(plan::check_verifiable(job.plan));
    job.out = claim_folder(config.run.out, kVerifyParts).or_throw();
    return decided;
  }
  job.out = request.resume ? std::filesystem::absolute(config.run.out)
                           : claim_folder(config.run.out).or_throw();
  job.lock = std::make_shared<base::FolderLock>(lock_folder(job.out).or_throw());
  // A run that was killed before it had a plan has left folders and an unfinished file.
  if (request.resume) base::throw_if_error(reopen_folder(job.out, 0));
  print(request, job);
  if (!decided.checked.initial.empty()) request.print(decided.checked.initial + "\n");
  return decided;
}

void print_resumption(const JobRequest& request, const SavedRun& saved, const ResumedPlan& resumed,
                      const std::filesystem::path& folder) {
  for (const std::string& reason : saved.passed_over) {
    request.print("not usable: " + reason + "\n");
  }
  const bool fresh = saved.checkpoint.empty();
  request.print(
      fmt::format("{}{}, behind step {}\n",
                  fresh ? "no checkpoint yet: begins again, with the job of " : "goes on from ",
                  (fresh ? folder / "plan.json" : saved.checkpoint).string(), saved.steps_done));
  for (const std::string& change : resumed.changes) request.print("changed: " + change + "\n");
}

/// Whether a new run can be meant where there is none to resume: a file describes it, or the command
/// names a model or data.
bool describes_job(const plan::LoadedConfig& loaded, const JobRequest& request) {
  return request.own || std::ranges::any_of(loaded.origins, [](const auto& one) {
           const auto& [key, origin] = one;
           return origin.line > 0 || key.starts_with("model.") || key.starts_with("data.");
         });
}

DecidedJob go_on(const SavedRun& saved, const JobRequest& request) {
  DecidedJob decided;
  plan::LoadedConfig& loaded = decided.checked.loaded;
  loaded = load_request(
      request, {.base = plan::resume_base(saved.plan.config), .base_source = "the saved run"});
  if (!loaded.mistakes.empty()) {
    decided.checked.code = Code::kInvalidArgument;
    return decided;
  }
  const std::filesystem::path folder = loaded.config.run.out;
  auto lock = std::make_shared<base::FolderLock>(lock_folder(folder).or_throw());
  ResumedPlan resumed =
      plan_resumed(saved, loaded, request.started, request.own, request.on_timing).or_throw();
  if (saved.is_finished && resumed.plan.config.train.steps == saved.steps_done) {
    request.print(fmt::format("all {} of {} are done; ask for more with --steps\n",
                              base::counted(saved.steps_done, "step"), folder.string()));
    return decided;
  }
  print_resumption(request, saved, resumed, folder);
  base::throw_if_error(reopen_folder(folder, saved.steps_done));
  decided.job = {std::move(resumed.plan), std::filesystem::absolute(folder), saved.checkpoint,
                 std::move(lock)};
  print(request, *decided.job);
  return decided;
}

}  // namespace

DecidedJob decide_job(const JobRequest& request) {
  plan::ConfigSources sources;
  if (request.purpose == Purpose::kVerify) sources.base.train.steps = kVerifiedSteps;
  plan::LoadedConfig loaded = load_request(request, std::move(sources));
  if (!request.resume) return begin(std::move(loaded), request);
  const std::string out = loaded.config.run.out;
  if (out.empty()) {
    throw Error(base::invalid_argument("--resume goes on with a run; name its folder with --out"));
  }
  if (const auto saved = find_saved_run(out).or_throw()) return go_on(*saved, request);
  if (!describes_job(loaded, request)) {
    throw Error(base::not_found(fmt::format(
        "run.out: there is no run to resume in {}; check --out, or say what to train as well "
        "(--config, --text, --data, --set model.preset=...) to begin a new run there",
        out)));
  }
  request.print("nothing to resume in " + out + ": begins a new run\n");
  return begin(std::move(loaded), request);
}

}  // namespace hanji::train
