#include "hanji/train/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "hanji/base/atomic_file.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/load.h"
#include "hanji/compute/attention.h"
#include "hanji/compute/measure.h"
#include "hanji/compute/product.h"
#include "hanji/data/samples.h"
#include "hanji/plan/model_family.h"
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

/// Other kernels, those of other vector instructions, and products of another tolerance round differently, so a run
/// goes on with its own.
Status check_kernels(const SavedRun& saved) {
  const base::KernelChoice& kernels = saved.plan.kernels;
  Status status = kernels.simd ? base::check_simd(*kernels.simd) : Status();
  if (status.ok()) status = compute::check_attention(kernels.attention, kernels.precision);
  if (status.ok()) status = compute::check_products(kernels);
  if (status.ok()) status = compute::check_weight_gradient(kernels.weight_gradient);
  return status.at("the saved run's kernels");
}

/// The ranks' rates and times decide how they exchange, and what is predicted, never what is
/// computed; so another number may measure its own.
Result<plan::PlanInputs> inputs_for(const SavedRun& saved, const plan::Config& config) {
  plan::PlanInputs inputs{.config = config, .rates = saved.plan.rates};
  inputs.kernels = saved.plan.kernels;
  inputs.times = saved.plan.times;
  HANJI_ASSIGN_OR_RETURN(inputs.machine, topology::read_machine());
  const bool same = config.run.ranks == saved.plan.ranks;
  if (same) return inputs;
  inputs.times = {};
  if (config.compute.device == plan::Device::kCuda) return inputs;
  const int ranks = config.run.ranks == plan::kAuto ? inputs.machine.usable_cores
                                                    : static_cast<int>(config.run.ranks);
  HANJI_ASSIGN_OR_RETURN(inputs.rates, measure_rates(inputs.machine, ranks));
  return inputs;
}

Status check_steps(const SavedRun& saved, const plan::Config& config) {
  if (config.train.steps >= saved.steps_done) return {};
  return base::invalid_argument(
      fmt::format("train.steps is {} here, and the saved run has done {}; ask for more with "
                  "--steps, or begin a new run in another --out",
                  config.train.steps, saved.steps_done));
}

/// What a run recognises its data by.
struct DataIdentity {
  std::string name;
  std::optional<data::Vocabulary> vocabulary;
  uint64_t checksum = 0;
  int64_t num_tokens = 0;  ///< 0: no tokens.
};

std::set<std::string> characters_of(const data::Vocabulary& vocabulary) {
  std::set<std::string> all;
  for (int64_t id = 0; id < vocabulary.size(); ++id) all.insert(vocabulary.decode({&id, 1}));
  return all;
}

/// "\"x\", \"y\" and 3 more": what `some` has beside `others`.
std::string beside(const std::set<std::string>& some, const std::set<std::string>& others) {
  constexpr size_t kShown = 5;
  std::vector<std::string> found;
  std::ranges::set_difference(some, others, std::back_inserter(found));
  if (found.empty()) return "none";
  const size_t shown = std::min(found.size(), kShown);
  std::string text;
  for (size_t i = 0; i < shown; ++i) text += (i > 0 ? ", " : "") + base::json_quote(found[i]);
  return found.size() == shown ? text : fmt::format("{} and {} more", text, found.size() - shown);
}

/// What the data are now, and what they were; empty for the same.
Result<std::string> difference(const base::Json& job, const DataIdentity& now) {
  const auto vocabulary = job.find("vocabulary");
  if (vocabulary != job.end() && vocabulary->is_null() != !now.vocabulary) {
    return fmt::format("the run has learned from {}", now.vocabulary ? "token ids" : "a text");
  }
  if (vocabulary != job.end() && now.vocabulary) {
    HANJI_ASSIGN_OR_RETURN(const auto saved, data::Vocabulary::from_json(base::dump(*vocabulary)));
    if (saved != *now.vocabulary) {
      const auto here = characters_of(*now.vocabulary), before = characters_of(saved);
      return fmt::format("its alphabet has {}, the run's {}; new: {}; gone: {}",
                         base::counted(std::ssize(here), "character"), before.size(),
                         beside(here, before), beside(before, here));
    }
  }
  const auto checksum = job.find("text_checksum");
  if (checksum == job.end() || !checksum->is_number_unsigned()) return std::string();
  const auto saved = checksum->get<uint64_t>();
  if (saved == now.checksum) return std::string();
  const auto tokens = job.find("num_tokens");
  std::string counts;
  if (now.num_tokens > 0 && tokens != job.end() && tokens->is_number_integer()) {
    counts = fmt::format("it has {}, the run's had {}; ", base::counted(now.num_tokens, "token"),
                         tokens->get<int64_t>());
  }
  return fmt::format("{}its checksum is {:016x}, that of the run's {:016x}", counts, now.checksum,
                     saved);
}

Status check_facts(const std::string& job, const DataIdentity& now) {
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(job));
  HANJI_ASSIGN_OR_RETURN(const std::string what, difference(json, now));
  if (what.empty()) return {};
  const bool are_tokens = now.num_tokens > 0;
  const std::string_view key = !are_tokens ? "" : now.vocabulary ? "data.text: " : "data.tokens: ";
  return base::invalid_argument(fmt::format(
      "{}{} is not what the saved run has learned from, or has changed: {}; go on with the same "
      "data{}, or begin a new run in another --out",
      key, now.name, what, are_tokens ? " (--text or --tokens names it)" : ""));
}

/// Data that cannot be opened as the saved run would may have changed, which is then the reason.
Result<Dataset> open_same_data(const SavedRun& saved, const plan::Config& config) {
  auto dataset = open_dataset(config);
  if (dataset.ok()) {
    HANJI_RETURN_IF_ERROR(check_same_data(saved.job, *dataset));
    return dataset;
  }
  const bool are_tokens = plan::data_kind(config) == plan::DataKind::kTokens;
  if (!are_tokens || !config.data.files.empty()) return dataset;
  HANJI_ASSIGN_OR_RETURN(const DataSource source, open_source(config.data));
  HANJI_RETURN_IF_ERROR(check_facts(saved.job, {.name = source.name,
                                                .vocabulary = source.vocabulary,
                                                .checksum = source.tokens.checksum(),
                                                .num_tokens = source.tokens.num_tokens()}));
  return dataset;
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
                                 const std::optional<StartedRanks>& started, const Workload* own,
                                 const TimingProgress& on_timing) {
  HANJI_ASSIGN_OR_RETURN(plan::ResumedConfig resumed,
                         plan::resume_config(saved.plan.config, asked));
  const plan::Config& config = resumed.config;
  HANJI_RETURN_IF_ERROR(check_steps(saved, config));
  HANJI_RETURN_IF_ERROR(check_kernels(saved));
  Workload workload;
  if (own) {
    workload = *own;
  } else {
    HANJI_ASSIGN_OR_RETURN(workload.dataset, open_same_data(saved, config));
  }
  const Dataset& dataset = workload.dataset;
  if (own) HANJI_RETURN_IF_ERROR(check_same_data(saved.job, dataset));
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
  if (inputs.times.samples == 0) {
    const int busy_ranks = started ? started->local_ranks : plan.plan.ranks;
    HANJI_RETURN_IF_ERROR(config.compute.device == plan::Device::kCuda
                              ? add_gpu_times(inputs, plan.plan, workload, started)
                              : add_times(inputs, plan.plan, workload, busy_ranks, on_timing));
    HANJI_ASSIGN_OR_RETURN(plan.plan, plan::make_plan(inputs));
  }
  if (!own) HANJI_RETURN_IF_ERROR(check_order(plan.plan.config, dataset));
  if (!started) return plan;
  plan.plan.cpus.assign(plan.plan.ranks, {});  // the launcher has decided
  return plan;
}

Status check_same_data(const std::string& job, const Dataset& dataset) {
  return check_facts(job,
                     {.name = dataset.name,
                      .vocabulary = dataset.vocabulary,
                      .checksum = dataset.samples->checksum(),
                      .num_tokens = dataset.tokens ? dataset.tokens->tokens().num_tokens() : 0});
}

}  // namespace hanji::train
