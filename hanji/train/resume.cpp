#include "hanji/train/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/base/atomic_file.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/load.h"
#include "hanji/data/source.h"
#include "hanji/plan/resume.h"
#include "hanji/train/prepare.h"

namespace hanji::train {
namespace {

namespace fs = std::filesystem;

/// True where there is nothing, or only what a run makes before it has a plan: empty folders, and an
/// unfinished file where it was killed as it wrote the plan.
bool is_unused(const fs::path& out) {
  std::error_code error;
  if (!fs::exists(out, error)) return true;
  if (!fs::is_directory(out, error)) return false;
  const auto is_left_over = [](const fs::directory_entry& entry) {
    std::error_code ignored;
    if (!entry.is_directory(ignored)) return base::AtomicFile::is_unfinished(entry.path());
    return fs::is_empty(entry.path(), ignored);
  };
  return std::all_of(fs::directory_iterator(out, error), fs::directory_iterator(), is_left_over);
}

bool has_checkpoints(const fs::path& folder) {
  const auto entries = checkpoint::list_checkpoints(folder);
  return (entries.ok() && !entries->empty()) || checkpoint::latest_step(folder) >= 0;
}

Result<SavedRun> from_checkpoint(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(const auto found, checkpoint::load_checkpoint(folder));
  SavedRun saved;
  HANJI_ASSIGN_OR_RETURN(saved.plan, plan::plan_from_json(found.manifest.plan));
  saved.checkpoint = found.path;
  saved.steps_done = found.manifest.step;
  saved.job = found.manifest.job;
  for (const Status& status : found.refused) saved.passed_over.push_back(status.message());
  return saved;
}

Result<SavedRun> from_plan(const fs::path& out) {
  const auto text = base::read_file(out / "plan.json", size_t{4} << 20);
  auto plan = text.ok() ? plan::plan_from_json(*text) : text.status();
  if (plan.ok()) return SavedRun{.plan = *std::move(plan)};
  return base::invalid_argument(
      fmt::format("run.out: {} holds something, but neither a checkpoint nor the plan of a run "
                  "({}); name the folder of a run with --out",
                  out.string(), plan.status().message()));
}

/// Kernels of other vector instructions round differently, so a run goes on with its own.
Status check_simd(const SavedRun& saved) {
  const std::optional<base::Simd> simd = saved.plan.kernels.simd;
  return simd ? base::check_simd(*simd).at("the saved run's kernels") : Status();
}

/// The ranks' rates and times decide how they exchange, and what is predicted, never what is
/// computed; so another number may measure its own.
Result<plan::PlanInputs> inputs_for(const SavedRun& saved, const plan::Config& config) {
  plan::PlanInputs inputs{.config = config, .rates = saved.plan.rates};
  inputs.kernels = saved.plan.kernels;
  inputs.times = saved.plan.times;
  HANJI_ASSIGN_OR_RETURN(inputs.machine, topology::read_machine());
  if (config.compute.device == plan::Device::kCuda) return inputs;
  const bool same = config.run.ranks == saved.plan.ranks;
  if (same) return inputs;
  const int ranks = config.run.ranks == plan::kAuto ? inputs.machine.usable_cores
                                                    : static_cast<int>(config.run.ranks);
  HANJI_ASSIGN_OR_RETURN(inputs.rates, measure_rates(inputs.machine, ranks));
  inputs.times = {};
  return inputs;
}

Status check_steps(const SavedRun& saved, const plan::Config& config) {
  if (config.train.steps >= saved.steps_done) return {};
  return base::invalid_argument(
      fmt::format("train.steps is {} here, and the saved run has done {}; ask for more with "
                  "--steps, or begin a new run in another --out",
                  config.train.steps, saved.steps_done));
}

}  // namespace

Result<std::optional<SavedRun>> find_saved_run(const fs::path& out) {
  if (is_unused(out)) return std::optional<SavedRun>();
  const fs::path folder = out / "checkpoints";
  HANJI_ASSIGN_OR_RETURN(SavedRun saved,
                         has_checkpoints(folder) ? from_checkpoint(folder) : from_plan(out));
  std::error_code error;
  saved.is_finished =
      saved.steps_done == saved.plan.config.train.steps && fs::exists(out / "summary.json", error);
  return std::optional(std::move(saved));
}

Result<ResumedPlan> plan_resumed(const SavedRun& saved, const plan::LoadedConfig& asked,
                                 const std::optional<StartedRanks>& started, const Workload* own) {
  HANJI_ASSIGN_OR_RETURN(plan::ResumedConfig resumed,
                         plan::resume_config(saved.plan.config, asked));
  const plan::Config& config = resumed.config;
  HANJI_RETURN_IF_ERROR(check_steps(saved, config));
  HANJI_RETURN_IF_ERROR(check_simd(saved));
  Workload workload;
  if (own) {
    workload = *own;
  } else {
    HANJI_ASSIGN_OR_RETURN(workload.dataset, open_dataset(config));
  }
  const Dataset& dataset = workload.dataset;
  HANJI_RETURN_IF_ERROR(check_same_data(saved.job, dataset));
  HANJI_ASSIGN_OR_RETURN(plan::PlanInputs inputs, inputs_for(saved, config));
  inputs.data = dataset.facts();
  HANJI_ASSIGN_OR_RETURN(inputs.model, facts_of_model(config, workload));
  if (config.compute.device == plan::Device::kCuda) {
    HANJI_ASSIGN_OR_RETURN(inputs.gpus, count_gpus(started));
  }
  if (started) {
    inputs.ranks_per_host = started->ranks_per_host;
    inputs.link = started->link;
  }
  ResumedPlan plan{.plan = {}, .changes = std::move(resumed.changes)};
  HANJI_ASSIGN_OR_RETURN(plan.plan, plan::make_plan(inputs));
  HANJI_RETURN_IF_ERROR(decide_moves(inputs, workload, plan.plan));
  if (config.compute.device == plan::Device::kCpu && inputs.times.samples == 0) {
    const int busy_ranks = started ? started->local_ranks : plan.plan.ranks;
    HANJI_RETURN_IF_ERROR(add_times(inputs, plan.plan, workload, busy_ranks));
    HANJI_ASSIGN_OR_RETURN(plan.plan, plan::make_plan(inputs));
  }
  if (!own) HANJI_RETURN_IF_ERROR(check_order(plan.plan.config, dataset));
  if (!started) return plan;
  plan.plan.cpus.assign(plan.plan.ranks, {});  // the launcher has decided
  return plan;
}

Status check_same_data(const std::string& job, const Dataset& dataset) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(job));
  const std::string hint = std::string("; a run goes on with the data it has learned from") +
                           (dataset.tokens ? ": name it with --text or --tokens" : "");
  const auto vocabulary = json.find("vocabulary");
  const std::string now = dataset.vocabulary ? dataset.vocabulary->to_json() : "null";
  if (vocabulary != json.end() && vocabulary->dump() != base::parse_json(now).or_throw().dump()) {
    return base::invalid_argument(fmt::format(
        "data.vocabulary: {} has {} tokens here, the saved run knew {}others{}", dataset.name,
        dataset.num_ids, vocabulary->is_null() ? "no text, only " : "", hint));
  }
  const auto checksum = json.find("text_checksum");
  const uint64_t mine = dataset.samples->checksum();
  if (checksum == json.end() || !checksum->is_number_unsigned()) return {};
  if (const auto saved = checksum->get<uint64_t>(); saved != mine) {
    return base::invalid_argument(
        fmt::format("{}{} has checksum {:016x} here and {:016x} in the saved run{}",
                    dataset.tokens ? "data.text: " : "", dataset.name, mine, saved, hint));
  }
  return {};
}

}  // namespace hanji::train
