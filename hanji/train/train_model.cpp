#include "hanji/train/train_model.h"

#include <utility>

#include "hanji/base/clock.h"
#include "hanji/checkpoint/export.h"
#include "hanji/checkpoint/load.h"
#include "hanji/comm/share_text.h"
#include "hanji/data/batch.h"
#include "hanji/lens/deferred.h"
#include "hanji/models/make.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/schema.h"
#include "hanji/train/decide_job.h"

namespace hanji::train {
namespace {

/// Batch normalisation takes more than one.
constexpr int64_t kProbedSamples = 2;

std::shared_ptr<layers::Model> make_own(const OwnModel& own, const data::Source& source,
                                        const plan::Config& config,
                                        const models::MakeOptions& options) {
  lens::Construction construction(static_cast<uint64_t>(config.train.seed));
  models::LayeredModule module = own.make();
  construction.finish(*module.root).materialise(options.device);
  layers::Batch probe;
  data::read_first(source, kProbedSamples, probe);
  const bool is_double = config.compute.dtype == plan::Precision::kFloat64;
  return std::make_shared<models::ModuleModel>(
      std::move(module), own.loss, is_double ? at::kDouble : at::kFloat, probe.to(options.device));
}

/// The last checkpoint's model as one file, merged from its parts.
std::filesystem::path export_model(const std::filesystem::path& out) {
  const checkpoint::Checkpoint last = checkpoint::load_checkpoint(out / "checkpoints").or_throw();
  std::filesystem::path model = out / "model.safetensors";
  std::filesystem::remove(model);  // of the run that this one goes on with
  checkpoint::export_tensors(last, {}, model).or_throw();
  return model;
}

/// What differs from its default was set, and is checked as if it had been written.
plan::LoadedConfig load_options(const TrainOptions& options, plan::ConfigSources sources) {
  sources.overrides.push_back({"model.preset=module", "train_model"});
  for (const plan::Key& key : plan::schema()) {
    const plan::Value value = key.get(options.config);
    if (value == key.get(plan::Config()) || key.name == "model.preset") continue;
    std::string text = plan::format_value(key, value);
    sources.overrides.push_back({std::string(key.name) + "=" + text, "TrainOptions"});
  }
  for (const std::string& one : options.assignments) sources.overrides.push_back({one});
  return plan::load_config(sources);
}

}  // namespace

Workload own_workload(const OwnModel& model, const data::Source& source) {
  Workload workload;
  workload.dataset.samples = std::shared_ptr<const data::Source>(std::shared_ptr<void>(), &source);
  workload.dataset.num_ids = 1;
  workload.dataset.name = "the program's own source";
  workload.make = [model, &source](const plan::Config& config, const models::MakeOptions& options) {
    return make_own(model, source, config, options);
  };
  return workload;
}

TrainedModel train_own_model(world::World& world, const OwnModel& model, const data::Source& source,
                             const TrainOptions& options) {
  const Workload workload = own_workload(model, source);
  const auto write = [&](std::string_view text) {
    if (options.write) options.write(text);
  };
  TrainedModel trained;
  const auto decide = [&](const MetRanks& met) {
    StartedRanks started = started_ranks(world).or_throw();
    started.ranks_per_host = met.ranks_per_host;
    started.link = met.link;
    DecidedJob decided = decide_job(
        {.load =
             [&](plan::ConfigSources sources) { return load_options(options, std::move(sources)); },
         .resume = options.resume,
         .started = started,
         .own = &workload,
         .print = write});
    base::throw_if_error(plan::to_status(decided.checked.loaded.mistakes));
    trained.out = decided.checked.loaded.config.run.out;
    if (decided.job) trained.out = decided.job->out;
    return Decision{.exit_code = 0, .job = std::move(decided.job)};
  };
  const JoinedOutcome outcome = run_joined(
      world, decide,
      {.out = "", .started_ns = base::now_ns(), .output = {.write = write}, .own = &workload});
  trained.stop_signal = outcome.rank.stop_signal;
  if (world.rank() == 0) trained.model = export_model(trained.out);
  for (std::filesystem::path* path : {&trained.out, &trained.model}) {
    *path = comm::share_text(path->string(), world.group(), "files of the run");
  }
  return trained;
}

}  // namespace hanji::train
