// What excludes each other of the mesh: its degrees, the ranks, and what they cut.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "hanji/base/limits.h"
#include "hanji/base/units.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/layout/split.h"
#include "hanji/plan/internal/contradictions.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/shard_plan.h"

namespace hanji::plan {
namespace {

/// Whether dp or fsdp takes the ranks that the other axes leave.
bool has_open_axis(const Config& c) {
  return c.mesh.dp == kAuto || (cuts_states(c.parallel.data) && c.mesh.fsdp == kAuto);
}

/// The degrees that are set: of dp and fsdp where they are not left open, of others above 1.
std::vector<AxisKey> set_axes(const Config& c) {
  std::vector<AxisKey> axes;
  for (const AxisKey& one : kAxisKeys) {
    const bool no_axis = one.axis == "fsdp" && !cuts_states(c.parallel.data);
    if (!no_axis && c.mesh.*one.degree != kAuto && c.mesh.*one.degree != 1) axes.push_back(one);
  }
  return axes;
}

/// Of the degrees that are set; beyond kMaxRanks of as many as exceed it.
int64_t degree_product(const Config& c) {
  int64_t product = 1;
  for (const AxisKey& one : set_axes(c)) {
    product *= c.mesh.*one.degree;
    if (product > base::kMaxRanks) break;
  }
  return product;
}

/// Ranks, where the configuration says how many.
int64_t ranks_of(const Config& c) {
  if (c.run.ranks != kAuto) return c.run.ranks;
  const int64_t peers = ranks_per_data_coordinate(c.mesh);
  if (!c.train.split.empty()) return std::ssize(c.train.split) * peers;
  const int64_t product = degree_product(c);
  return has_open_axis(c) || product > base::kMaxRanks ? kAuto : product;
}

/// Of the ranks if they are known, else of the degrees that are set.
int64_t data_coordinates(const Config& c) {
  const int64_t ranks = ranks_of(c), peers = ranks_per_data_coordinate(c.mesh);
  if (ranks != kAuto && ranks % peers == 0) return ranks / peers;
  return std::max<int64_t>(1, c.mesh.dp) * std::max<int64_t>(1, c.mesh.fsdp);
}

/// "run.ranks is 8", or "run.ranks is 8, 4 data coordinates of 2" where ranks see the same samples.
std::string counted_ranks(const Config& c) {
  const int64_t peers = ranks_per_data_coordinate(c.mesh), ranks = ranks_of(c);
  std::string text = c.run.ranks == kAuto
                         ? fmt::format("the mesh has {}", base::counted(ranks, "rank"))
                         : fmt::format("run.ranks is {}", ranks);
  if (peers > 1) text += fmt::format(", {} data coordinates of {}", ranks / peers, peers);
  return text;
}

void check_split(const Config& c, int64_t num_grains, Found& found) {
  const auto shares = static_cast<int64_t>(c.train.split.size());
  const int64_t peers = ranks_per_data_coordinate(c.mesh);
  if (shares * peers > base::kMaxRanks) {
    found.push_back({{"train.split"},
                     fmt::format("train.split has {} shares, but at most {} run", shares,
                                 base::counted(base::kMaxRanks, "rank")),
                     "shorten train.split"});
    return;
  }
  if (c.run.ranks != kAuto && shares * peers != c.run.ranks) {
    found.push_back({{"train.split", "run.ranks", "mesh.dp"},
                     fmt::format("train.split has {} shares, but {}", shares, counted_ranks(c)),
                     fmt::format("set run.ranks = {}", shares * peers)});
    return;
  }
  const auto split = layout::split_grains(num_grains, static_cast<int>(shares), c.train.split);
  if (!split.ok()) {
    found.push_back({{"train.split", "train.global_batch", "train.grain"},
                     fmt::format("train.split cannot be served: {}", split.status().message()),
                     ""});
  }
}

/// The presets whose layers an axis cuts.
std::vector<std::string_view> presets_cut_by(std::string_view axis) {
  std::vector<std::string_view> presets;
  for (const ModelFamily& family : model_families()) {
    if (is_cut_by(family, axis)) {
      presets.insert(presets.end(), family.presets.begin(), family.presets.end());
    }
  }
  return presets;
}

/// Whether the model says what an axis shares out.
bool has_parts(const ModelFamily& family, std::string_view axis) {
  return is_cut_by(family, axis) || (axis == "pp" && family.facts != nullptr);
}

/// The most ranks of an axis.
int64_t most_ranks(const Config& c, std::string_view axis) {
  const ModelFamily& family = family_of(c.model);
  return has_parts(family, axis) ? family.parts(c, axis).most_ranks() : base::kMaxRanks;
}

/// The degrees nearest to that of `one` with which the mesh has all `ranks`, `others` of them along the
/// other axes that are set; none: there is no such degree.
std::vector<int64_t> nearest_degrees(const Config& c, const AxisKey& one, int64_t ranks,
                                     int64_t others) {
  const int64_t most = most_ranks(c, one.axis);
  if (ranks % others != 0) return {};
  if (has_open_axis(c)) return layout::nearest_divisors(ranks / others, c.mesh.*one.degree, most);
  return ranks / others <= most ? std::vector{ranks / others} : std::vector<int64_t>();
}

/// Of an axis that has more ranks than the model has parts.
void check_parts(const Config& c, const AxisKey& one, Found& found) {
  const ModelParts parts = family_of(c.model).parts(c, one.axis);
  const int64_t degree = c.mesh.*one.degree;
  if (degree <= parts.most_ranks()) return;
  const int64_t ranks = ranks_of(c), product = degree_product(c);
  std::string fit =
      fmt::format("{}{}", parts.most_ranks(), parts.most_ranks() > 1 ? " or less" : "");
  if (ranks != kAuto && product <= base::kMaxRanks) {
    const auto nearest = nearest_degrees(c, one, ranks, product / degree);
    if (!nearest.empty()) fit = fmt::format("{}", fmt::join(nearest, " or "));
  }
  const std::string with =
      parts.besides > 0 ? fmt::format(", with {} {}", parts.besides_name, parts.count) : "";
  found.push_back({{one.key, parts.key, "model.preset"},
                   fmt::format("{} is {}, but a rank has {} {} and {} is {}{}", one.key, degree,
                               parts.each > 1 ? fmt::format("{} or more", parts.each) : "whole",
                               parts.name, parts.key, parts.count - parts.besides, with),
                   fmt::format("set {} = {}", one.key, fit)});
}

/// Axes other than dp and fsdp, by which the model itself is cut.
void check_cut_axes(const Config& c, std::span<const std::string_view> cut_axes, Found& found) {
  for (const AxisKey& one : kAxisKeys) {
    if (one.axis == "dp" || one.axis == "fsdp" || c.mesh.*one.degree == 1) continue;
    if (has_parts(family_of(c.model), one.axis)) {
      check_parts(c, one, found);
      continue;
    }
    if (one.axis == "pp") continue;  // of layers that are counted
    if (std::ranges::find(cut_axes, one.axis) != cut_axes.end()) continue;
    const auto presets = presets_cut_by(one.axis);
    const std::string others =
        presets.empty() ? "" : fmt::format(", or set a preset of {}", fmt::join(presets, ", "));
    found.push_back({{one.key, "model.preset"},
                     fmt::format("{} is {}, but model.preset = {} is not cut by {}", one.key,
                                 c.mesh.*one.degree, c.model.preset, one.axis),
                     fmt::format("remove {}{}", one.key, others)});
  }
  if (c.mesh.tp > 1 && c.mesh.axial > 1) {
    found.push_back(
        {{"mesh.axial", "mesh.tp"},
         fmt::format("mesh.axial is {} and mesh.tp is {}, but axial stands in the place "
                     "of tp",
                     c.mesh.axial, c.mesh.tp),
         "remove one of them"});
  }
}

/// What a model that "tp" cuts is not trained with.
void check_cut_model(const Config& c, Found& found) {
  const auto needs_tp = [&](std::string_view key, std::string_view what) {
    if (c.mesh.tp > 1) return;
    found.push_back({{key, "mesh.tp"},
                     fmt::format("{} the ranks of mesh.tp, which is 1", what),
                     fmt::format("set mesh.tp, or remove {}", key)});
  };
  if (c.parallel.sequence) {
    needs_tp("parallel.sequence", "parallel.sequence cuts the residual stream among");
  }
  if (c.parallel.moves == Moves::kWeights) {
    needs_tp("parallel.moves", "parallel.moves = weights moves parts of weights between");
  }
  if (c.mesh.tp == 1) return;
  const std::string cut = fmt::format("mesh.tp = {}", c.mesh.tp);
  const auto refuse = [&](std::string_view key, std::string message, std::string suggestion) {
    found.push_back({{key, "mesh.tp"}, std::move(message), std::move(suggestion)});
  };
  if (c.train.bits == Bits::kStable && c.train.cuts.features < c.mesh.tp) {
    refuse("train.bits",
           fmt::format("train.bits = stable with {} computes features in {} or more, but "
                       "train.cuts.features is {}",
                       cut, base::counted(c.mesh.tp, "block"), c.train.cuts.features),
           fmt::format("set train.cuts.features = {} or more, or train.bits = \"run\"", c.mesh.tp));
  }
  if (c.train.bits == Bits::kStable && c.parallel.sequence && c.train.cuts.tokens < c.mesh.tp) {
    refuse("parallel.sequence",
           fmt::format("parallel.sequence with train.bits = stable and {} computes tokens in {}"
                       " or more, but train.cuts.tokens is {}",
                       cut, base::counted(c.mesh.tp, "block"), c.train.cuts.tokens),
           fmt::format("set train.cuts.tokens = {} or more, or train.bits = \"run\"", c.mesh.tp));
  }
  if (c.compute.device == Device::kCuda) {
    refuse("compute.device", fmt::format("{} cuts models on CPUs, but compute.device is cuda", cut),
           "set compute.device = \"cpu\"");
  } else if (engine_of(c) != Engine::kShm) {
    refuse("comm.engine",
           fmt::format("{} needs ranks that share memory, but comm.engine is {}", cut,
                       name_of(c.comm.engine)),
           "set comm.engine = \"shm\"");
  }
}

/// One degree to change, or else the ranks, so that the degrees' product divides them, or is them
/// where none is open. Nothing of degrees that no ranks serve.
std::string degree_to_change(const Config& c, int64_t ranks, int64_t product) {
  const std::vector<AxisKey> axes = set_axes(c);
  for (const AxisKey& one : std::views::reverse(axes)) {
    const auto nearest = nearest_degrees(c, one, ranks, product / (c.mesh.*one.degree));
    if (!nearest.empty()) return fmt::format("set {} = {}", one.key, fmt::join(nearest, " or "));
  }
  const auto fits = [&](const AxisKey& one) {
    return c.mesh.*one.degree <= most_ranks(c, one.axis);
  };
  if (!std::ranges::all_of(axes, fits)) return "";
  return fmt::format("set run.ranks = {}",
                     has_open_axis(c) ? (ranks + product - 1) / product * product : product);
}

/// Of dp and fsdp one is set and the other open, and no number of ranks says what it is. One that the strategy
/// does not have is refused by itself.
void check_open_degree(const Config& c, Found& found) {
  const bool has_dp = c.parallel.data == Sharding::kHybrid && c.mesh.dp > 1;
  const bool has_fsdp = cuts_states(c.parallel.data) && c.mesh.fsdp > 1;
  if (has_dp == has_fsdp) return;
  const std::string_view set = has_dp ? "mesh.dp" : "mesh.fsdp";
  const std::string_view open = has_dp ? "mesh.fsdp" : "mesh.dp";
  found.push_back(
      {{set, open, "run.ranks"},
       fmt::format("{} is {}, but neither {} nor run.ranks says how many ranks there are", set,
                   has_dp ? c.mesh.dp : c.mesh.fsdp, open),
       c.parallel.data == Sharding::kHybrid ? fmt::format("set run.ranks, or {}", open)
                                            : "set run.ranks"});
}

/// The product of all degrees is the number of ranks.
void check_degrees(const Config& c, Found& found) {
  const bool open = has_open_axis(c);
  const int64_t product = degree_product(c);
  std::vector<std::string> degrees;
  std::vector<std::string_view> keys;
  for (const AxisKey& one : set_axes(c)) {
    degrees.push_back(fmt::format("{} {}", one.axis, c.mesh.*one.degree));
    keys.insert(keys.begin(), one.key);
  }
  keys.insert(keys.end(), {"run.ranks", "train.split"});
  const int64_t ranks = ranks_of(c);
  if (product > base::kMaxRanks) {
    found.push_back({keys,
                     fmt::format("a mesh of ({}) has more than {}", fmt::join(degrees, ", "),
                                 base::counted(base::kMaxRanks, "rank")),
                     "set smaller degrees"});
  } else if (ranks == kAuto) {
    check_open_degree(c, found);
  } else if (open ? ranks % product != 0 : ranks != product) {
    found.push_back(
        {keys,
         fmt::format("a mesh of ({}) {} {}", fmt::join(degrees, ", "),
                     open ? "does not divide" : "does not have", base::counted(ranks, "rank")),
         degree_to_change(c, ranks, product)});
  }
}

}  // namespace

bool is_cut_by(const ModelFamily& family, std::string_view axis) {
  return std::ranges::find(family.cut_axes, axis) != family.cut_axes.end();
}

void check_ranks(const Config& c, Found& found) {
  const int64_t num_grains = c.train.global_batch / c.train.grain;
  const int64_t peers = ranks_per_data_coordinate(c.mesh);
  if (!c.train.split.empty()) return check_split(c, num_grains, found);
  const int64_t ranks = ranks_of(c);
  if (ranks != kAuto && num_grains < ranks / peers) {
    found.push_back(
        {{"train.global_batch", "run.ranks", "mesh.dp", "train.grain"},
         fmt::format("train.global_batch {} gives {} of {}, but {} and every {} needs one",
                     c.train.global_batch, base::counted(num_grains, "grain"), c.train.grain,
                     counted_ranks(c), peers == 1 ? "rank" : "coordinate"),
         fmt::format("set train.global_batch = {}", ranks / peers * c.train.grain)});
  }
}

void check_mesh(const Config& c, std::span<const std::string_view> cut_axes, Found& found) {
  const auto data = name_of(c.parallel.data);
  check_cut_axes(c, cut_axes, found);
  check_cut_model(c, found);
  check_axial(c, found);
  check_context(c, found);
  check_stages(c, found);
  if (!cuts_states(c.parallel.data) && c.mesh.fsdp != kAuto && c.mesh.fsdp > 1) {
    found.push_back(
        {{"mesh.fsdp", "parallel.data"},
         fmt::format("mesh.fsdp is {}, but parallel.data = {} cuts no state", c.mesh.fsdp, data),
         "set parallel.data = \"hsdp\", or remove mesh.fsdp"});
  }
  const auto needs_shards = [&](std::string_view key, std::string_view value) {
    if (cuts_parameters(c.parallel.data)) return;
    found.push_back(
        {{key, "parallel.data"},
         fmt::format("{} is {}, but parallel.data = {} shards no parameters", key, value, data),
         fmt::format("set parallel.data = \"zero3\", or remove {}", key)});
  };
  if (!c.parallel.share_memory) needs_shards("parallel.share_memory", "false");
  if (c.parallel.reshard != Reshard::kAuto) {
    needs_shards("parallel.reshard", name_of(c.parallel.reshard));
  }
  const bool one_state = cuts_states(c.parallel.data) && c.parallel.data != Sharding::kHybrid;
  if (one_state && c.mesh.dp != kAuto && c.mesh.dp > 1) {
    found.push_back({{"mesh.dp", "parallel.data"},
                     fmt::format("mesh.dp is {}, but parallel.data = {} cuts one state among all "
                                 "ranks, which is mesh.fsdp",
                                 c.mesh.dp, data),
                     fmt::format("set mesh.fsdp = {} and remove mesh.dp, or set parallel.data = "
                                 "\"hsdp\"",
                                 data_coordinates(c))});
  }
  check_degrees(c, found);
}

}  // namespace hanji::plan
