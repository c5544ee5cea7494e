#include "hanji/train/plan_meshes.h"

#include <fmt/format.h>

#include "hanji/plan/plan.h"
#include "hanji/train/prepare.h"

namespace hanji::train {
namespace {

using plan::MeshConfig;

/// The degrees by which `data` shares out the coordinates of a mesh.
std::vector<MeshConfig> ways_of(MeshConfig mesh, plan::Sharding data) {
  if (data == plan::Sharding::kReplicas || data == plan::Sharding::kServer) return {mesh};
  std::vector<MeshConfig> ways;
  const int64_t coordinates = mesh.dp;
  for (mesh.fsdp = 1; mesh.fsdp <= coordinates; ++mesh.fsdp) {
    const bool all = mesh.fsdp == coordinates;
    if (coordinates % mesh.fsdp != 0 || (data != plan::Sharding::kHybrid && !all)) continue;
    mesh.dp = coordinates / mesh.fsdp;
    ways.push_back(mesh);
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
    const std::function<plan::LoadedConfig(const std::string& mesh)>& load,
    const std::function<void(const std::string& mesh)>& on_mesh) {
  const CheckedJob job = check_job(load(""), FolderUse::kNone);
  HANJI_RETURN_IF_ERROR(plan::to_status(job.loaded.mistakes));
  HANJI_ASSIGN_OR_RETURN(const plan::Plan whole, prepare(job.loaded.config, {*job.dataset}));
  plan::MeshTable table;
  table.about = fmt::format(
      "meshes     of model.preset {} on {} ranks of this machine, parallel.data {}\n"
      "batch      {} samples a step; predicted from operations and calls timed here\n",
      whole.config.model.preset, whole.ranks, name_of(whole.config.parallel.data),
      whole.config.train.global_batch);
  for (const MeshConfig& mesh : plan::all_meshes(whole.ranks)) {
    for (const MeshConfig& way : ways_of(mesh, whole.config.parallel.data)) {
      const std::string words = to_string(way);
      on_mesh(words);
      auto choice = planned(load(words));
      if (choice.ok()) {
        table.fitting.push_back(*std::move(choice));
      } else {
        ++table.refused[fmt::format("--mesh {}: {}", words, first_line(choice.status().message()))];
      }
    }
  }
  sort_meshes(table.fitting);
  return table;
}

}  // namespace hanji::train
