#include "hanji/train/plan_meshes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>

#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/plan.h"
#include "hanji/plan/shard_plan.h"
#include "hanji/train/prepare.h"

namespace hanji::train {
namespace {

using plan::MeshChoice;
using plan::Reshard;
using plan::Sharding;

constexpr std::string_view kDegrees = "mesh.";

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
  const int64_t ranks = coordinates * (has_terms ? mesh.cp * mesh.axial : 1);
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

std::vector<MeshChoice> all_ways(const plan::LoadedConfig& job) {
  std::vector<MeshChoice> ways;
  const auto axes = plan::family_of(job.config.model).cut_axes;
  for (const plan::MeshConfig& mesh : plan::all_meshes(job.config.run.ranks, axes)) {
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

/// Whether a choice of mesh and strategy may mend it.
bool is_of_choice(const plan::LoadedConfig& job, const plan::ConfigMistake& mistake) {
  return std::ranges::any_of(mistake.keys, [&](std::string_view key) {
    const bool is_open = key == "parallel.data" && !job.origins.contains(key);
    return is_open || key.starts_with(kDegrees);
  });
}

/// The job that every choice is of, whose own mesh is none of them.
Result<plan::LoadedConfig> checked(plan::LoadedConfig loaded) {
  const auto is_left = [&](const plan::ConfigMistake& one) { return is_of_choice(loaded, one); };
  std::erase_if(loaded.mistakes, is_left);
  for (const auto& [key, origin] : loaded.origins) {
    if (!key.starts_with(kDegrees)) continue;
    loaded.mistakes.push_back({origin, key,
                               fmt::format("{} is set, but --meshes takes every degree", key),
                               fmt::format("remove {}", key)});
  }
  loaded = check_job(std::move(loaded), FolderUse::kNone).loaded;
  std::erase_if(loaded.mistakes, is_left);
  HANJI_RETURN_IF_ERROR(plan::to_status(loaded.mistakes));
  HANJI_ASSIGN_OR_RETURN(loaded.config.run.ranks, ranks_of_job(loaded.config));
  if (loaded.config.run.ranks > base::kMaxRanksPerHost) {
    return base::invalid_argument(
        fmt::format("run.ranks is {}, but --meshes plans ranks of this machine, which runs at most "
                    "{}; set run.ranks = {}",
                    loaded.config.run.ranks, base::kMaxRanksPerHost, base::kMaxRanksPerHost));
  }
  return loaded;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The meshes that one reason keeps out, the first of them by name: "--mesh tp=2, --mesh tp=4, ...: why".
std::string with_flags(const std::vector<std::string>& flags, const std::string& why) {
  constexpr size_t kMaxNamed = 2;
  const auto named = std::span(flags).first(std::min(flags.size(), kMaxNamed));
  return fmt::format("{}{}: {}", fmt::join(named, ", "), flags.size() > kMaxNamed ? ", ..." : "",
                     why);
}

/// Of the axes that cut models' layers, those that do not cut this one's.
std::string axes_not_tried(const plan::ModelConfig& model) {
  const auto cut = plan::family_of(model).cut_axes;
  std::vector<std::string_view> axes;
  for (const std::string_view axis : {"cp", "tp", "axial"}) {
    if (std::ranges::find(cut, axis) == cut.end()) axes.push_back(axis);
  }
  if (axes.empty()) return "";
  return fmt::format("{}: model.preset = {} is not cut by {}", fmt::join(axes, ", "), model.preset,
                     axes.size() == 1 ? "it" : "them");
}

}  // namespace

Result<plan::MeshTable> plan_meshes(
    const std::function<plan::LoadedConfig(const std::optional<MeshChoice>& choice)>& load,
    const std::function<void(const std::string& flags)>& on_mesh) {
  HANJI_ASSIGN_OR_RETURN(const plan::LoadedConfig job, checked(load({})));
  plan::MeshTable table;
  table.about = fmt::format(
      "meshes     of model.preset {} on {} of this machine\n"
      "batch      {} a step; predicted from operations and calls timed here\n",
      job.config.model.preset, base::counted(job.config.run.ranks, "rank"),
      base::counted(job.config.train.global_batch, "sample"));
  const std::vector<MeshChoice> ways = all_ways(job);
  std::map<std::string, std::vector<std::string>> refused;  // flags by why
  for (const MeshChoice& way : ways) {
    const std::string flags = flags_of(way);
    on_mesh(flags);
    auto choice = planned(load(way));
    if (choice.ok()) {
      table.fitting.push_back(*std::move(choice));
    } else if (ways.size() == 1) {
      return choice.status();
    } else {
      refused[first_line(choice.status().message())].push_back(flags);
    }
  }
  for (const auto& [why, flags] : refused) {
    table.refused[with_flags(flags, why)] = static_cast<int>(flags.size());
  }
  table.not_tried = axes_not_tried(job.config.model);
  sort_meshes(table.fitting);
  return table;
}

}  // namespace hanji::train
