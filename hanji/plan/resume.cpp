#include "hanji/plan/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "hanji/plan/schema.h"
#include "hanji/plan/shard_plan.h"

namespace hanji::plan {
namespace {

// Of the tables that belong to the job, the keys that do not.
constexpr std::array<std::string_view, 15> kFree = {
    "data.text",     "data.tokens",          "data.files",
    "data.workers",  "data.prefetch",        "data.prefetch_bytes",
    "data.cache",    "train.steps",          "train.log_every",
    "train.profile", "train.split",          "train.micro_batch",
    "train.nan",     "train.evaluate_every", "train.evaluate_batches"};

bool names_kernel(std::string_view key) {
  return key == "compute.gemm" || key == "compute.attention" || key == "compute.dtype" ||
         key == "compute.products" || key == "compute.device";
}

bool is_auto(const Key& key, const Value& value) {
  if (key.type == KeyType::kChoice) return key.choices[std::get<int64_t>(value)] == "auto";
  return key.may_be_auto && value == Value(kAuto);
}

ConfigMistake refusal(const Key& key, const Config& recorded, const LoadedConfig& asked) {
  return {.origin = asked.origins.find(key.name)->second,
          .key = std::string(key.name),
          .message = fmt::format("{} is {} here and {} in the saved run", key.name,
                                 format_value(key, key.get(asked.config)),
                                 format_value(key, key.get(recorded))),
          .suggestion = names_kernel(key.name)
                            ? "other kernels round differently, so a run goes on with its own"
                            : "leave it out to go on, or begin a new run in another --out"};
}

/// What a number of ranks decided and another number decides anew.
void decide_anew(const LoadedConfig& asked, ResumedConfig& resumed) {
  const auto forget = [&](std::string_view key, int64_t& value) {
    if (asked.origins.contains(key) || value == kAuto) return;
    resumed.changes.push_back(fmt::format("{} {} -> decided anew", key, value));
    value = kAuto;
  };
  forget("train.micro_batch", resumed.config.train.micro_batch);
  forget("compute.threads", resumed.config.compute.threads);
  forget("data.workers", resumed.config.data.workers);
  forget("data.prefetch", resumed.config.data.prefetch);
}

/// The mesh follows from the ranks and the strategy, unless it was asked for; with it goes what its
/// ranks of tp and cp cut and exchange.
void decide_mesh_anew(const LoadedConfig& asked, Config& resumed) {
  for (const AxisKey& one : kAxisKeys) {
    if (!asked.origins.contains(one.key)) resumed.mesh.*one.degree = MeshConfig().*one.degree;
  }
  if (resumed.mesh.pp == 1) resumed.pipeline = PipelineConfig();
  if (!asked.origins.contains("parallel.moves")) resumed.parallel.moves = Moves::kAuto;
  if (!asked.origins.contains("parallel.context")) resumed.parallel.context = ContextWay::kAuto;
  if (!asked.origins.contains("parallel.triangle")) resumed.parallel.triangle = TriangleWay::kAuto;
  if (!asked.origins.contains("parallel.reshard")) resumed.parallel.reshard = Reshard::kAuto;
  const bool keeps_shards = cuts_parameters(resumed.parallel.data);
  if (!asked.origins.contains("parallel.share_memory") && !keeps_shards) {
    resumed.parallel.share_memory = true;
  }
  if (!asked.origins.contains("parallel.sequence") && resumed.mesh.tp == 1) {
    resumed.parallel.sequence = false;
  }
}

/// Stages and micro-batches follow from the rest of the pipeline.
void decide_stages_anew(const LoadedConfig& asked, PipelineConfig& resumed) {
  if (!asked.origins.contains("pipeline.micro_batches")) resumed.micro_batches = kAuto;
  if (!asked.origins.contains("pipeline.cut")) resumed.cut.clear();
}

}  // namespace

bool belongs_to_job(std::string_view key) {
  const bool in_table =
      key.starts_with("model.") || key.starts_with("data.") || key.starts_with("train.");
  return (in_table && std::ranges::find(kFree, key) == kFree.end()) || key == "compute.dtype" ||
         key == "compute.products";
}

Config resume_base(Config recorded) {
  recorded.mesh = {};
  recorded.pipeline = {};
  recorded.parallel.sequence = false;
  recorded.parallel.moves = Moves::kAuto;
  recorded.parallel.context = ContextWay::kAuto;
  recorded.parallel.triangle = TriangleWay::kAuto;
  recorded.parallel.reshard = Reshard::kAuto;
  recorded.parallel.share_memory = true;
  recorded.data.workers = recorded.data.prefetch = kAuto;
  return recorded;
}

Result<ResumedConfig> resume_config(const Config& recorded, const LoadedConfig& asked) {
  ResumedConfig resumed{.config = recorded, .changes = {}};
  std::vector<ConfigMistake> mistakes;
  for (const Key& key : schema()) {
    const auto origin = asked.origins.find(key.name);
    if (origin == asked.origins.end()) continue;
    const Value value = key.get(asked.config);
    const bool kept = belongs_to_job(key.name) || names_kernel(key.name);
    if (value == key.get(recorded) || (kept && is_auto(key, value))) continue;
    if (kept) {
      mistakes.push_back(refusal(key, recorded, asked));
      continue;
    }
    key.set(resumed.config, value);
    if (key.name == "run.out") continue;  // A folder may have moved; that changes nothing.
    resumed.changes.push_back(fmt::format("{} {} -> {} ({})", key.name,
                                          format_value(key, key.get(recorded)),
                                          format_value(key, value), origin->second.to_string()));
  }
  HANJI_RETURN_IF_ERROR(to_status(mistakes));
  if (asked.origins.contains("data.workers") && !asked.origins.contains("data.prefetch")) {
    resumed.config.data.prefetch = kAuto;
  }
  const int64_t ranks = resumed.config.run.ranks;
  if (ranks != recorded.run.ranks) decide_anew(asked, resumed);
  const bool same_mesh =
      ranks == recorded.run.ranks && resumed.config.parallel.data == recorded.parallel.data &&
      std::ranges::none_of(kAxisKeys,
                           [&](const AxisKey& one) { return asked.origins.contains(one.key); });
  if (!same_mesh) decide_mesh_anew(asked, resumed.config);
  const bool same_pipeline = std::ranges::none_of(
      asked.origins, [](const auto& one) { return one.first.starts_with("pipeline."); });
  if (!same_mesh || !same_pipeline) decide_stages_anew(asked, resumed.config.pipeline);
  return resumed;
}

}  // namespace hanji::plan
