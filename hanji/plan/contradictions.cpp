#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "hanji/base/limits.h"
#include "hanji/layout/mesh_shape.h"
#include "hanji/layout/split.h"
#include "hanji/plan/internal/contradictions.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/named_algorithms.h"
#include "hanji/plan/schema.h"
#include "hanji/plan/shard_plan.h"
#include "hanji/plan/train_limits.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::plan {
namespace {

void check_batches(const Config& c, Found& found) {
  const TrainConfig& t = c.train;
  if (t.global_batch % t.grain != 0) {
    const int64_t above = (t.global_batch / t.grain + 1) * t.grain;
    found.push_back({{"train.global_batch", "train.grain"},
                     fmt::format("train.global_batch {} is not a multiple of train.grain {}",
                                 t.global_batch, t.grain),
                     fmt::format("set train.global_batch = {}", above)});
  }
  if (t.micro_batch == kAuto) return;
  if (t.micro_batch % t.grain != 0) {
    const int64_t above = (t.micro_batch / t.grain + 1) * t.grain;
    found.push_back({{"train.micro_batch", "train.grain"},
                     fmt::format("train.micro_batch {} is not a multiple of train.grain {}",
                                 t.micro_batch, t.grain),
                     fmt::format("set train.micro_batch = {}", above)});
  }
  if (t.micro_batch > t.global_batch) {
    found.push_back({{"train.micro_batch", "train.global_batch"},
                     fmt::format("train.micro_batch {} is above train.global_batch {}",
                                 t.micro_batch, t.global_batch),
                     "set train.micro_batch = \"auto\""});
  }
}

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
  std::string text = c.run.ranks == kAuto ? fmt::format("the mesh has {} ranks", ranks)
                                          : fmt::format("run.ranks is {}", ranks);
  if (peers > 1) text += fmt::format(", {} data coordinates of {}", ranks / peers, peers);
  return text;
}

void check_split(const Config& c, int64_t num_grains, Found& found) {
  const auto shares = static_cast<int64_t>(c.train.split.size());
  const int64_t peers = ranks_per_data_coordinate(c.mesh);
  if (shares * peers > base::kMaxRanks) {
    found.push_back({{"train.split"},
                     fmt::format("train.split has {} shares, but at most {} ranks run", shares,
                                 base::kMaxRanks),
                     "shorten train.split"});
    return;
  }
  if (c.run.ranks != kAuto && shares * peers != c.run.ranks) {
    found.push_back({{"train.split", "run.ranks"},
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

void check_ranks(const Config& c, Found& found) {
  const int64_t num_grains = c.train.global_batch / c.train.grain;
  const int64_t peers = ranks_per_data_coordinate(c.mesh);
  if (!c.train.split.empty()) return check_split(c, num_grains, found);
  const int64_t ranks = ranks_of(c);
  if (ranks != kAuto && num_grains < ranks / peers) {
    found.push_back(
        {{"train.global_batch", "run.ranks", "mesh.dp", "train.grain"},
         fmt::format("train.global_batch {} gives {} grains of {}, but {} and every {} needs one",
                     c.train.global_batch, num_grains, c.train.grain, counted_ranks(c),
                     peers == 1 ? "rank" : "coordinate"),
         fmt::format("set train.global_batch = {}", ranks / peers * c.train.grain)});
  }
}

void check_learning_rate(const Config& c, Found& found) {
  const TrainConfig& t = c.train;
  const bool falls = t.schedule != LearningRateSchedule::kConstant;
  if (falls && t.min_learning_rate > t.learning_rate) {
    found.push_back({{"train.min_learning_rate", "train.learning_rate"},
                     fmt::format("train.min_learning_rate {} is above train.learning_rate {}",
                                 t.min_learning_rate, t.learning_rate),
                     fmt::format("set train.min_learning_rate = {}", t.learning_rate / 10)});
  }
  if (t.warmup_steps > t.steps) {
    found.push_back(
        {{"train.warmup_steps", "train.steps"},
         fmt::format("train.warmup_steps {} is above train.steps {}", t.warmup_steps, t.steps),
         "set train.warmup_steps = \"auto\""});
  }
}

void check_bits(const Config& c, Found& found) {
  if (c.train.bits != Bits::kStable) return;
  const int64_t num_grains = c.train.global_batch / c.train.grain;
  const layout::Range all{0, num_grains};
  if (const Status fits = schedule::check_owners(num_grains, {&all, 1}); !fits.ok()) {
    found.push_back({{"train.grain", "train.global_batch", "train.bits"},
                     fmt::format("train.bits = stable cannot be served: {}", fits.message()),
                     "set a larger train.grain"});
  }
  if (c.compute.device == Device::kCuda) {
    found.push_back(
        {{"train.bits", "compute.device"},
         "train.bits = stable sums over a tree of grains, which nothing carries out for "
         "tensors of compute.device = cuda",
         "set train.bits = \"run\", or compute.device = \"cpu\""});
  }
}

/// Blocks that a mesh may cut: of features, or of tokens, which rows of pairs are too. `axes`: one of them cuts
/// models that are computed so.
void check_blocks(const Config& c, std::string_view key, int64_t blocks,
                  std::initializer_list<std::string_view> axes, Found& found) {
  if (blocks == 1) return;
  const auto refuse = [&](std::string_view other, const std::string& why, std::string suggestion) {
    found.push_back(
        {{key, other}, fmt::format("{} is {}, but {}", key, blocks, why), std::move(suggestion)});
  };
  if (c.train.bits != Bits::kStable) {
    refuse("train.bits",
           fmt::format("train.bits = {} computes whole products", name_of(c.train.bits)),
           fmt::format("set train.bits = \"stable\", or remove {}", key));
  }
  const auto is_cut = [&](std::string_view axis) { return is_cut_by(family_of(c.model), axis); };
  if (std::ranges::none_of(axes, is_cut)) {
    refuse("model.preset",
           fmt::format("model.preset = {} is not computed in blocks", c.model.preset),
           fmt::format("remove {}", key));
  }
}

void check_cuts(const Config& c, Found& found) {
  const auto [features, tokens] = c.train.cuts;
  check_blocks(c, "train.cuts.features", features, {"tp"}, found);
  check_blocks(c, "train.cuts.tokens", tokens, {"tp", "axial"}, found);
  if (features > 1 && c.parallel.moves == Moves::kWeights) {
    found.push_back({{"train.cuts.features", "parallel.moves"},
                     fmt::format("train.cuts.features is {}, but parallel.moves = weights sums the "
                                 "weights' gradients over rows by rank",
                                 features),
                     "remove parallel.moves or train.cuts.features"});
  }
  if (tokens > 1 && c.train.grain > 1) {
    found.push_back({{"train.cuts.tokens", "train.grain"},
                     fmt::format("train.cuts.tokens is {}, but train.grain = {} computes the "
                                 "tokens of several samples together",
                                 tokens, c.train.grain),
                     "set train.grain = 1, or remove train.cuts.tokens"});
  }
  if (tokens > 1 && is_cut_by(family_of(c.model), "axial")) {
    const ModelParts parts = family_of(c.model).parts(c, "axial");
    if (tokens <= parts.count) return;
    found.push_back({{"train.cuts.tokens", parts.key},
                     fmt::format("train.cuts.tokens is {}, but a block has whole {} and {} is {}",
                                 tokens, parts.name, parts.key, parts.count),
                     fmt::format("set train.cuts.tokens = {} or less", parts.count)});
  } else if (const int64_t block = resolved(c.model).block; tokens > 1 && tokens > block) {
    found.push_back(
        {{"train.cuts.tokens", "model.block"},
         fmt::format("train.cuts.tokens is {}, but a sample has {} tokens", tokens, block),
         fmt::format("set train.cuts.tokens = {} or less", block)});
  }
}

void check_gpus(const Config& c, Found& found) {
  if (engine_of(c) != Engine::kNccl) {
    found.push_back({{"comm.engine", "compute.device"},
                     fmt::format("comm.engine = {} moves tensors of CPUs, but compute.device = "
                                 "cuda computes on GPUs",
                                 name_of(c.comm.engine)),
                     "set comm.engine = \"auto\""});
  }
  if (c.compute.gemm == Gemm::kOneDnn) {
    found.push_back({{"compute.gemm", "compute.device"},
                     "compute.gemm = onednn multiplies on CPUs, but compute.device is cuda",
                     "set compute.gemm = \"auto\""});
  }
  if (c.compute.attention == Attention::kMath) {
    found.push_back({{"compute.attention", "compute.device"},
                     "compute.attention = math is a kernel for CPUs, but compute.device is cuda",
                     "set compute.attention = \"auto\""});
  }
}

void check_device(const Config& c, Found& found) {
  if (c.compute.device == Device::kCuda) return check_gpus(c, found);
  if (c.comm.engine == Engine::kNccl) {
    found.push_back({{"comm.engine", "compute.device"},
                     "comm.engine = nccl moves tensors of GPUs, but compute.device = cpu computes "
                     "on cores",
                     "set compute.device = \"cuda\", or comm.engine = \"auto\""});
  }
  for (const auto& [variable, value] : c.comm.nccl) {
    const std::string_view key = find_key("comm.nccl." + variable)->name;
    found.push_back({{key, "compute.device"},
                     fmt::format("{} is set, but with compute.device = cpu nothing goes through "
                                 "NCCL",
                                 key),
                     fmt::format("remove {}, or set compute.device = \"cuda\"", key)});
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

/// The most ranks of an axis.
int64_t most_ranks(const Config& c, std::string_view axis) {
  const ModelFamily& family = family_of(c.model);
  return is_cut_by(family, axis) ? family.parts(c, axis).most_ranks() : base::kMaxRanks;
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
  std::string fit = fmt::format("{} or less", parts.most_ranks());
  if (ranks != kAuto && product <= base::kMaxRanks) {
    const auto nearest = nearest_degrees(c, one, ranks, product / degree);
    if (!nearest.empty()) fit = fmt::format("{}", fmt::join(nearest, " or "));
  }
  found.push_back({{one.key, parts.key, "model.preset"},
                   fmt::format("{} is {}, but a rank has {} {} and {} is {}", one.key, degree,
                               parts.each > 1 ? fmt::format("{} or more", parts.each) : "whole",
                               parts.name, parts.key, parts.count),
                   fmt::format("set {} = {}", one.key, fit)});
}

/// Axes other than dp and fsdp, by which the model itself is cut.
void check_cut_axes(const Config& c, std::span<const std::string_view> cut_axes, Found& found) {
  for (const AxisKey& one : kAxisKeys) {
    const bool cuts_layers = one.axis != "dp" && one.axis != "fsdp" && one.axis != "pp";
    if (!cuts_layers || c.mesh.*one.degree == 1) continue;
    if (is_cut_by(family_of(c.model), one.axis)) {
      check_parts(c, one, found);
      continue;
    }
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
           fmt::format("train.bits = stable with {} computes features in {} blocks or more, but "
                       "train.cuts.features is {}",
                       cut, c.mesh.tp, c.train.cuts.features),
           fmt::format("set train.cuts.features = {} or more, or train.bits = \"run\"", c.mesh.tp));
  }
  if (c.train.bits == Bits::kStable && c.parallel.sequence && c.train.cuts.tokens < c.mesh.tp) {
    refuse("parallel.sequence",
           fmt::format("parallel.sequence with train.bits = stable and {} computes tokens in {} "
                       "blocks or more, but train.cuts.tokens is {}",
                       cut, c.mesh.tp, c.train.cuts.tokens),
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
                     fmt::format("a mesh of ({}) has more than {} ranks", fmt::join(degrees, ", "),
                                 base::kMaxRanks),
                     "set smaller degrees"});
  } else if (ranks == kAuto) {
    if (!open || product == ranks_per_data_coordinate(c.mesh)) return;
    found.push_back({keys, "one degree of the mesh is set, but neither the other nor run.ranks",
                     "set run.ranks"});
  } else if (open ? ranks % product != 0 : ranks != product) {
    found.push_back({keys,
                     fmt::format("a mesh of ({}) {} {} ranks", fmt::join(degrees, ", "),
                                 open ? "does not divide" : "does not have", ranks),
                     degree_to_change(c, ranks, product)});
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

void check_parallel(const Config& c, Found& found) {
  const auto data = name_of(c.parallel.data);
  const TrainSetup setup{
      .data = c.parallel.data, .device = c.compute.device, .engine = engine_of(c)};
  if (has_limit(setup, TrainLimit::kGpus)) {
    found.push_back({{"parallel.data", "compute.device"},
                     fmt::format("parallel.data = {} keeps states in the memory of the host, but "
                                 "compute.device = cuda computes on GPUs",
                                 data),
                     "set parallel.data = \"ddp\", or compute.device = \"cpu\""});
  } else if (has_limit(setup, TrainLimit::kEngine)) {
    found.push_back({{"parallel.data", "comm.engine"},
                     fmt::format("parallel.data = {} needs ranks that share memory, but "
                                 "comm.engine is {}",
                                 data, name_of(c.comm.engine)),
                     "set comm.engine = \"shm\", or parallel.data = \"ddp\""});
  }
}

void check_offload(const Config& c, Found& found) {
  const OffloadConfig& offload = c.offload;
  if (offload.optimizer == Place::kMemory) {
    if (offload.folder.empty()) return;
    found.push_back({{"offload.folder", "offload.optimizer"},
                     "offload.folder is set, but offload.optimizer = memory puts nothing there",
                     "set offload.optimizer = \"file\", or remove offload.folder"});
    return;
  }
  if (offload.folder.empty()) {
    found.push_back({{"offload.optimizer", "offload.folder"},
                     "offload.optimizer = file, but offload.folder names no folder for it",
                     "set offload.folder to one of a local disk"});
  }
  if (c.parallel.data != Sharding::kReplicas) {
    found.push_back(
        {{"offload.optimizer", "parallel.data"},
         fmt::format("offload.optimizer = file is for ranks that each have all moments, "
                     "but with parallel.data = {} a host has them once, in memory that "
                     "its ranks share",
                     name_of(c.parallel.data)),
         "set offload.optimizer = \"memory\", or parallel.data = \"ddp\""});
  }
  if (c.compute.device == Device::kCuda) {
    found.push_back({{"offload.optimizer", "compute.device"},
                     "offload.optimizer = file updates on CPUs, but compute.device = cuda has "
                     "parameters on GPUs",
                     "set offload.optimizer = \"memory\", or compute.device = \"cpu\""});
  }
}

void check_kernels(const Config& c, Found& found) {
  if (c.compute.dtype == Precision::kFloat64 && c.compute.gemm == Gemm::kOneDnn) {
    found.push_back({{"compute.gemm", "compute.dtype"},
                     "compute.gemm = onednn has no float64, which compute.dtype asks for",
                     "set compute.gemm = \"auto\""});
  }
}

void check_algorithms(const Config& c, Found& found) {
  const bool shares_memory = engine_of(c) == Engine::kShm;
  for (const auto& [routine, algorithm] : named_algorithms(c.comm)) {
    const Status status = cost::check_named(
        {.routine = routine,
         .algorithm = algorithm,
         .medium = shares_memory ? cost::Medium::kMemory : cost::Medium::kMessages,
         .ranks = c.run.ranks == kAuto ? 0 : static_cast<int>(c.run.ranks),
         .needs_order = c.train.bits != Bits::kFast});
    if (status.ok()) continue;
    const std::string_view key = find_key(fmt::format("comm.algorithm.{}", name_of(routine)))->name;
    found.push_back({{key, "comm.engine", "train.bits"},
                     fmt::format("{}: {}", key, status.message()),
                     fmt::format("remove {}", key)});
  }
}

}  // namespace

bool is_cut_by(const ModelFamily& family, std::string_view axis) {
  return std::ranges::find(family.cut_axes, axis) != family.cut_axes.end();
}

cost::NamedAlgorithms named_algorithms(const CommConfig& comm) {
  cost::NamedAlgorithms named;
  for (const auto& [routine, algorithm] : comm.algorithm) {
    named.emplace(schedule::routine_named(routine).value(), algorithm);
  }
  return named;
}

std::vector<Contradiction> find_contradictions(const Config& config,
                                               std::span<const std::string_view> cut_axes) {
  Found found;
  check_data(config, found);
  check_model(config, found);
  check_batches(config, found);
  check_ranks(config, found);
  check_learning_rate(config, found);
  check_bits(config, found);
  check_cuts(config, found);
  check_device(config, found);
  check_mesh(config, cut_axes, found);
  check_parallel(config, found);
  check_offload(config, found);
  check_kernels(config, found);
  check_algorithms(config, found);
  return found;
}

}  // namespace hanji::plan
