#include "hanji/train/prepare.h"

#include "hanji/base/checksum.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/version.h"
#include "hanji/compute/measure.h"
#include "hanji/cost/measure.h"
#include "hanji/train/dataset.h"
#include "hanji/train/kernel_choice.h"
#include "hanji/train/run_folder.h"

namespace hanji::train {
namespace {

/// What was measured for one machine and one kind of job.
struct Measurements {
  cost::Rates rates;
  compute::KernelChoice kernels;
};

template <class Choice, class Asked>
std::optional<Choice> asked_for(Asked asked) {
  if (asked == Asked::kAuto) return std::nullopt;
  return static_cast<Choice>(static_cast<int>(asked) - 1);
}

compute::MeasureOptions kernel_options(const plan::Plan& draft) {
  const plan::ModelSpec& model = draft.model;
  return {.shapes = {.batch = draft.micro_batch,
                     .block = model.block,
                     .width = model.width,
                     .heads = model.heads},
          .dtype = to_compute({.gemm = plan::Gemm::kMkl,
                               .attention = plan::Attention::kMath,
                               .precision = draft.config.compute.dtype})
                       .dtype,
          .gemm = asked_for<compute::Gemm>(draft.config.compute.gemm),
          .attention = asked_for<compute::Attention>(draft.config.compute.attention)};
}

int64_t last_cache_bytes(const topology::Machine& machine) {
  return machine.caches.empty() ? cost::MeasureOptions().cache_bytes : machine.caches.back().bytes;
}

Result<Measurements> measure_now(const plan::Plan& draft, const plan::Config& asked,
                                 const topology::Machine& machine) {
  plan::Plan with_choices = draft;
  with_choices.config.compute = asked.compute;
  Measurements found;
  HANJI_ASSIGN_OR_RETURN(found.kernels, compute::measure(kernel_options(with_choices)));
  HANJI_ASSIGN_OR_RETURN(found.rates, measure_rates(machine, draft.ranks));
  return found;
}

/// Everything that the measurement depends on, as a file name.
std::string cache_name(const plan::Plan& draft, const plan::Config& asked,
                       const topology::Machine& machine) {
  base::Json key;
  key["build"] = base::build_id();
  key["cpu"] = machine.cpu_model;
  key["cores"] = machine.usable_cores;
  key["ranks"] = draft.ranks;
  key["micro_batch"] = draft.micro_batch;
  key["model"] = {draft.model.width, draft.model.heads, draft.model.block};
  key["asked"] = {name_of(asked.compute.gemm), name_of(asked.compute.attention),
                  name_of(asked.compute.dtype)};
  base::Sha256 hash;
  const std::string text = key.dump();
  hash.update(std::as_bytes(std::span(text)));
  return "kernels-" + hash.hex().substr(0, 16) + ".json";
}

Result<Measurements> read_measurements(const std::filesystem::path& path) {
  HANJI_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, 1 << 20));
  HANJI_ASSIGN_OR_RETURN(const base::Json json, base::parse_json(text));
  if (!json.contains("rates") || !json.contains("kernels")) return base::corrupt("no measurement");
  Measurements found;
  HANJI_ASSIGN_OR_RETURN(found.rates, cost::rates_from_json(json["rates"].dump()));
  HANJI_ASSIGN_OR_RETURN(found.kernels, compute::choice_from_json(json["kernels"].dump()));
  return found;
}

Status write_measurements(const std::filesystem::path& path, const Measurements& found) {
  base::Json json;
  HANJI_ASSIGN_OR_RETURN(json["rates"], base::parse_json(cost::to_json(found.rates)));
  HANJI_ASSIGN_OR_RETURN(json["kernels"], base::parse_json(compute::to_json(found.kernels)));
  return base::write_file_atomic(path, json.dump(1));
}

/// Measured once per machine: a damaged or foreign file is measured and written anew.
Result<Measurements> measured(const plan::Plan& draft, const plan::Config& asked,
                              const topology::Machine& machine) {
  HANJI_ASSIGN_OR_RETURN(const auto folder, cache_folder());
  const auto path = folder / cache_name(draft, asked, machine);
  if (auto known = read_measurements(path); known.ok()) return known;
  HANJI_ASSIGN_OR_RETURN(auto found, measure_now(draft, asked, machine));
  HANJI_RETURN_IF_ERROR(write_measurements(path, found));
  return found;
}

/// So that a run can be resumed from another folder.
plan::Config with_absolute_paths(plan::Config config) {
  for (std::string* path : {&config.data.text, &config.data.tokens}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
  return config;
}

}  // namespace

Result<cost::Rates> measure_rates(const topology::Machine& machine, int ranks) {
  return cost::measure_rates({.ranks = ranks,
                              .usable_cores = machine.usable_cores,
                              .cache_bytes = last_cache_bytes(machine),
                              .rank_cpus = topology::cpus_per_rank(machine, ranks)});
}

Result<plan::Plan> prepare(const plan::Config& config) {
  const plan::ModelSpec model = plan::resolve_model(config.model);
  HANJI_ASSIGN_OR_RETURN(const Dataset dataset,
                         open_dataset(config.data, model.block, config.model.vocabulary));
  return prepare(config, dataset.facts());
}

Result<plan::Plan> prepare(const plan::Config& asked, const plan::DataFacts& data) {
  const plan::Config config = with_absolute_paths(asked);
  plan::PlanInputs inputs{.config = config, .data = data};
  HANJI_ASSIGN_OR_RETURN(inputs.machine, topology::read_machine());
  // The draft decides ranks and shapes, which is what there is to measure.
  const plan::ComputeConfig& compute = config.compute;
  inputs.kernels.precision = compute.dtype;
  if (compute.gemm != plan::Gemm::kAuto) inputs.kernels.gemm = compute.gemm;
  if (compute.attention != plan::Attention::kAuto) inputs.kernels.attention = compute.attention;
  HANJI_ASSIGN_OR_RETURN(const plan::Plan draft, plan::make_plan(inputs));
  HANJI_ASSIGN_OR_RETURN(const Measurements found, measured(draft, config, inputs.machine));
  inputs.rates = found.rates;
  inputs.kernels = to_plan(found.kernels);
  return plan::make_plan(inputs);
}

}  // namespace hanji::train
