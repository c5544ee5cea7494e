// What excludes each other of batches, bits, devices and memory; and all of it together.
#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/units.h"
#include "hanji/plan/internal/contradictions.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/named_algorithms.h"
#include "hanji/plan/profiled_steps.h"
#include "hanji/plan/schema.h"
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
         fmt::format("set train.steps = {} or more, or train.warmup_steps = \"auto\"",
                     t.warmup_steps)});
  }
}

void check_profile(const Config& c, Found& found) {
  const auto steps = profiled_steps(c.train.profile);
  if (!steps.ok()) {
    found.push_back({{"train.profile"},
                     "train.profile " + steps.status().message(),
                     "set train.profile = \"steps 10-12\""});
  } else if (steps->end > c.train.steps) {
    const int64_t begin = std::max<int64_t>(0, std::min(steps->begin, c.train.steps - 1));
    found.push_back({{"train.profile", "train.steps"},
                     fmt::format("train.profile \"{}\" ends after train.steps {}", c.train.profile,
                                 c.train.steps),
                     fmt::format("set train.profile = \"steps {}-{}\", or train.steps = {} or more",
                                 begin + 1, c.train.steps, steps->end)});
  }
  if (!steps.ok() || steps->size() == 0 || c.compute.device == Device::kCpu) return;
  found.push_back(
      {{"train.profile", "compute.device"},
       "train.profile times operations on CPUs alone, and compute.device is cuda",
       "leave train.profile out, and profile GPUs by nsys (docs/learn/6_profiling.md)"});
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
    found.push_back({{"train.cuts.tokens", "model.block"},
                     fmt::format("train.cuts.tokens is {}, but a sample has {}", tokens,
                                 base::counted(block, "token")),
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
  if (c.compute.attention == Attention::kMath || c.compute.attention == Attention::kTiles) {
    found.push_back({{"compute.attention", "compute.device"},
                     fmt::format("compute.attention = {} is a kernel for CPUs, but compute.device "
                                 "is cuda",
                                 name_of(c.compute.attention)),
                     "set compute.attention = \"auto\""});
  }
}

void check_tiles(const Config& c, Found& found) {
  if (c.compute.attention != Attention::kTiles || c.compute.dtype == Precision::kBFloat16) return;
  found.push_back({{"compute.attention", "compute.dtype"},
                   fmt::format("compute.attention = tiles multiplies bf16, but compute.dtype = {}",
                               name_of(c.compute.dtype)),
                   "set compute.dtype = \"bf16\", or compute.attention = \"auto\""});
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
  if (c.compute.products == Products::kHighest) return;
  const std::string products = fmt::format(
      "compute.products = {} is a tolerance of float32 products "
      "on CPUs",
      name_of(c.compute.products));
  if (c.compute.dtype != Precision::kFloat32) {
    found.push_back(
        {{"compute.products", "compute.dtype"},
         fmt::format("{}, but compute.dtype = {} has none", products, name_of(c.compute.dtype)),
         "remove compute.products, or set compute.dtype = \"float32\""});
  }
  if (c.compute.device == Device::kCuda) {
    found.push_back({{"compute.products", "compute.device"},
                     fmt::format("{}, but compute.device = cuda multiplies on GPUs", products),
                     "remove compute.products, or set compute.device = \"cpu\""});
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
  check_profile(config, found);
  check_bits(config, found);
  check_cuts(config, found);
  check_device(config, found);
  check_tiles(config, found);
  check_mesh(config, cut_axes, found);
  check_parallel(config, found);
  check_offload(config, found);
  check_kernels(config, found);
  check_algorithms(config, found);
  return found;
}

}  // namespace hanji::plan
