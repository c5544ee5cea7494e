#include "hanji/train/plan_meshes.h"

#include <fmt/format.h>

#include "hanji/plan/model_family.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/shard_plan.h"
#include "hanji/train/prepare.h"

namespace hanji::train {
namespace {

using plan::MeshChoice;
using plan::Reshard;
using plan::Sharding;

/// Its own, if it is set.
std::vector<Sharding> strategies_of(const plan::LoadedConfig& job) {
  if (job.origins.contains("parallel.data")) return {job.config.parallel.data};
  return {Sharding::kReplicas, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3,
          Sharding::kHybrid};
}

/// How long stages keep parameters whole, where that moves bytes; else as the job says.
std::vector<Reshard> reshards_of(const plan::LoadedConfig& job, const MeshChoice& choice) {
  const plan::ParallelConfig& parallel = job.config.parallel;
  const bool moves = choice.mesh.pp > 1 && !parallel.share_memory && cuts_parameters(choice.data);
  if (!moves || parallel.reshard != Reshard::kAuto) return {Reshard::kAuto};
  return {Reshard::kStep, Reshard::kMicroBatch};
}

/// Whether a strategy is in these groups what it is in no other way of the mesh. `ranks`: that can share out a
/// state.
bool differs(Sharding data, int64_t coordinates, int64_t fsdp, int64_t ranks) {
  if (data == Sharding::kHybrid) return fsdp > 1 && fsdp < coordinates;
  return ranks > 1;
}

/// The degrees by which `data` shares out the coordinates of a mesh.
void add_ways(const plan::LoadedConfig& job, plan::MeshConfig mesh, Sharding data,
              std::vector<MeshChoice>& ways) {
  if (!cuts_states(data)) return ways.push_back({.mesh = mesh, .data = data});
  const int64_t coordinates = mesh.dp;
  const bool has_terms = job.config.train.bits != plan::Bits::kStable;
  const int64_t ranks = coordinates * (has_terms ? mesh.cp : 1);
  const bool is_asked = job.origins.contains("parallel.data");
  for (mesh.fsdp = 1; mesh.fsdp <= coordinates; ++mesh.fsdp) {
    const bool divides =
        mesh.fsdp == coordinates || (data == Sharding::kHybrid && coordinates % mesh.fsdp == 0);
    if (!divides || !(is_asked || differs(data, coordinates, mesh.fsdp, ranks))) continue;
    mesh.dp = coordinates / mesh.fsdp;
    MeshChoice choice{.mesh = mesh, .data = data};
    for (const Reshard reshard : reshards_of(job, choice)) {
      choice.reshard = reshard;
      ways.push_back(choice);
    }
  }
}

std::vector<MeshChoice> all_ways(const plan::LoadedConfig& job, int64_t ranks) {
  std::vector<MeshChoice> ways;
  const auto axes = plan::family_of(job.config.model).cut_axes;
  for (const plan::MeshConfig& mesh : plan::all_meshes(ranks, axes)) {
    for (const Sharding data : strategies_of(job)) add_ways(job, mesh, data, ways);
  }
  return ways;
}

Result<plan::MeshChoice> planned(plan::LoadedConfig loaded) {
  const CheckedJob job = check_job(std::move(loaded), FolderUse::kNone);
  if (!job.loaded.mistakes.empty()) {
    return base::invalid_argument(job.loaded.mistakes.front().message);
  }
  HANJI_ASSIGN_OR_RETURN(const plan::Plan plan, prepare(job.loaded.config, {*job.dataset}));
  return plan::choice_of(plan);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Result<plan::MeshTable> plan_meshes(
    const std::function<plan::LoadedConfig(const std::optional<MeshChoice>& choice)>& load,
    const std::function<void(const std::string& flags)>& on_mesh) {
  const CheckedJob job = check_job(load({}), FolderUse::kNone);
  HANJI_RETURN_IF_ERROR(plan::to_status(job.loaded.mistakes));
  HANJI_ASSIGN_OR_RETURN(const plan::Plan whole, prepare(job.loaded.config, {*job.dataset}));
  plan::MeshTable table;
  table.about = fmt::format(
      "meshes     of model.preset {} on {} ranks of this machine\n"
      "batch      {} samples a step; predicted from operations and calls timed here\n",
      whole.config.model.preset, whole.ranks, whole.config.train.global_batch);
  for (const MeshChoice& way : all_ways(job.loaded, whole.ranks)) {
    const std::string flags = flags_of(way);
    on_mesh(flags);
    auto choice = planned(load(way));
    if (choice.ok()) {
      table.fitting.push_back(*std::move(choice));
    } else {
      ++table.refused[fmt::format("{}: {}", flags, first_line(choice.status().message()))];
    }
  }
  sort_meshes(table.fitting);
  return table;
}

}  // namespace hanji::train
