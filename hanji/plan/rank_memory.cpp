#include "hanji/plan/rank_memory.h"

#include <algorithm>
#include <utility>

#include "hanji/base/attention_extent.h"
#include "hanji/plan/gathers.h"
#include "hanji/plan/host_messages.h"
#include "hanji/plan/pipeline_plan.h"
#include "hanji/plan/server_plan.h"
#include "hanji/schedule/action.h"

namespace hanji::plan {
namespace {

/// What of a plan's work is one rank's.
struct RankPart {
  int rank = 0;
  int data_coordinate = 0;
  int64_t samples = 0;
  int64_t gradient_buffers = 1;
};

/// `buffers`: gradient_buffers().
RankPart own_part(const Plan& plan, int rank, const std::vector<int64_t>& buffers) {
  const int data = plan.mesh.data_coordinate(rank);
  return {rank, data, plan.shares[data].samples.size(), buffers[data]};
}

/// A rank's part of a step of so many samples.
struct RankStep {
  schedule::ActionList actions;
  int64_t micro_batch = 0;
  int64_t samples = 0;
  int64_t samples_of(const schedule::Action& action) const {
    return std::min(micro_batch, samples - action.micro_batch * micro_batch);
  }
};

RankStep step_of(const Plan& plan, int64_t micro_batch, const RankPart& part) {
  if (micro_batch == 0) return {};
  const int64_t count = (part.samples + micro_batch - 1) / micro_batch;
  if (plan.mesh.degree("pp") == 1) {
    return {schedule::train_actions(count), micro_batch, part.samples};
  }
  const auto schedule = schedule_of(plan.config, count).or_throw();
  return {schedule.ranks[plan.mesh.coordinate(part.rank, "pp")], micro_batch, part.samples};
}

/// Of a micro-batch in a stage. What the stage passes on is not kept. Layer 0 keeps all until
/// backward_weight, and the gradient of what it has passed on.
schedule::KeptBytes kept_in_stage(const Plan& plan, layout::Range layers, int64_t samples) {
  const std::vector<LayerFacts>& all = plan.model.layers;
  const int64_t element = parameter_bytes(plan.kernels.precision);
  const bool splits = splits_backward(plan.model, layers);
  schedule::KeptBytes bytes;
  if (layers.end < std::ssize(all)) bytes.forward = -all[layers.end - 1].flow.of(samples);
  for (int64_t i = layers.end - 1; i >= layers.begin; --i) {
    const int64_t kept = all[i].kept.of(samples);
    bytes.forward += kept;
    if (!splits) continue;
    if (i == 0) {
      bytes.weights += kept + all[i].flow.of(samples);
    } else if (all[i].for_weights) {
      bytes.weights += all[i].for_weights->of(samples);
    } else {
      for (const ParameterFacts& one : plan.model.parameters) {
        if (one.layer == i) bytes.weights += element * one.elements;
      }
    }
    bytes.growth = std::max(bytes.growth, bytes.weights - bytes.forward);
  }
  return bytes;
}

/// Of the micro-batches of a step, where most of them are under way.
int64_t kept_bytes(const Plan& plan, const RankStep& step) {
  const std::vector<layout::Range> stages = stages_of(plan);
  return schedule::peak_bytes(step.actions, [&](const schedule::Action& forward) {
    return kept_in_stage(plan, stages[forward.stage], step.samples_of(forward));
  });
}

/// Of flows that were received, where most of them are under way, and of two that leave.
int64_t flow_bytes(const Plan& plan, const RankStep& step) {
  const std::vector<layout::Range> stages = stages_of(plan);
  int64_t largest = 0;
  const int64_t received = schedule::peak_bytes(step.actions, [&](const schedule::Action& forward) {
    const int64_t first = stages[forward.stage].begin;
    if (first == 0) return schedule::KeptBytes();
    const int64_t bytes = plan.model.layers[first - 1].flow.of(step.samples_of(forward));
    largest = std::max(largest, bytes);
    return schedule::KeptBytes{.forward = bytes};
  });
  return received + 2 * largest;
}

/// Whether `rank` saves what its data coordinate saves, or a part of it: of ranks of terms the first.
bool saves(const Plan& plan, int rank) {
  if (ranks_of_terms(plan) > 1 && cuts_states(plan.config.parallel.data)) return true;
  return plan.mesh.coordinate(rank, "cp") == 0 && plan.mesh.coordinate(rank, "axial") == 0;
}

/// Elements of what all ranks that cut a model have, which the first one saves.
int64_t whole_elements(const ModelFacts& model) {
  int64_t elements = 0;
  for (const ParameterFacts& one : model.parameters) {
    if (one.parts.empty()) elements += one.elements;
  }
  return elements;
}

bool is_first_of_host(const Plan& plan, int rank) {
  return rank == 0 || plan.hosts.host_of(rank) != plan.hosts.host_of(rank - 1);
}

/// Samples of all micro-batches of a step are read before the first one is used, and those of the
/// data.prefetch next steps while it is. Of the ranks of a host that see the same ones, the first has
/// them, and room for as many that it reads meanwhile.
int64_t data_bytes(const Plan& plan, int64_t micro_batch, const RankPart& part) {
  const std::vector<int> peers = readers_of(plan, part.rank);
  const Config& config = plan.config;
  const bool share_memory = config.compute.device == Device::kCpu &&
                            (plan.hosts.several() || engine_of(config) == Engine::kShm);
  const int64_t ahead = std::max<int64_t>(0, config.data.prefetch) * part.samples;
  const int64_t pages = is_first_of_host(plan, part.rank) ? cache_bytes(plan) : 0;
  const bool is_alone = peers.size() == 1 || !share_memory;
  if (is_alone) return pages + (part.samples + ahead) * plan.model.sample_bytes;
  if (peers.front() != part.rank) return pages;
  return pages + 2 * (std::max(part.samples, micro_batch) + ahead) * plan.model.sample_bytes;
}

/// What the engine keeps of calls in which ranks of several hosts exchange shards, for the next ones.
int64_t staging_bytes(const Plan& plan, const ShardPlan& shards, int rank) {
  const HostLayout hosts = hosts_of(plan.hosts, shard_group(plan, rank));
  if (!hosts.several()) return 0;
  Staging most;
  for (const layout::Unit& unit : shards.units) {
    const std::vector<int64_t> counts = layout::shard_counts(unit);
    most.add(hosts, HostShares(hosts, counts), shard_index(plan, rank), shards.element_bytes);
  }
  constexpr int64_t kNormBytes = sizeof(double);
  most.add(hosts, HostShares(hosts, norm_counts(shards)), shard_index(plan, rank), kNormBytes);
  return most.bytes();
}

/// The same of calls of layers, in a group along an axis.
int64_t layer_staging_bytes(const Plan& plan, std::string_view axis, int64_t samples, int rank) {
  const HostLayout hosts = hosts_of(plan.hosts, plan.mesh.members(rank, axis).or_throw());
  if (!hosts.several()) return 0;
  const int own = plan.mesh.coordinate(rank, axis), ranks = plan.mesh.degree(axis);
  Staging most;
  for (const LayerFacts& layer : plan.model.layers) {
    for (const LayerCall& call : layer.calls) {
      if (call.is_context != (axis == "cp")) continue;
      const auto bytes = static_cast<int64_t>(base::size_of(call.dtype));
      std::vector<int64_t> counts;
      for (const Amount& one : call.counts) counts.push_back(one.of(samples));
      if (call.routine == schedule::Routine::kAllToAll) {
        most.add(HostMessages(hosts, counts), own, bytes);
      } else if (call.routine == schedule::Routine::kAllGather ||
                 call.routine == schedule::Routine::kReduceScatter) {
        if (counts.size() == 1) counts.assign(ranks, counts[0]);
        most.add(hosts, HostShares(hosts, counts), own, bytes);
      }
    }
  }
  return most.bytes();
}

/// Of all groups in which the rank is.
int64_t staging_bytes(const Plan& plan, int64_t samples, int rank) {
  const auto shards = shards_of(plan, rank);
  int64_t bytes = shards && shards->spans_hosts ? staging_bytes(plan, *shards, rank) : 0;
  for (const std::string_view axis : axes_over_hosts(plan)) {
    bytes += layer_staging_bytes(plan, axis, samples, rank);
  }
  return bytes;
}

/// What a rank has of parameters, gradients and the optimizer, and the bytes of parameters that it saves.
struct HeldState {
  std::vector<MemoryLine> lines;
  int64_t saved = 0;
};

HeldState whole_state(const Plan& plan, const ModelFacts& model, const RankPart& part) {
  const int64_t element = parameter_bytes(plan.kernels.precision);
  const layout::FlatLayout flat_layout =
      gradient_buckets(model.parameter_sizes(), plan.config.comm.bucket_bytes).flat;
  const int64_t flat = flat_layout.count * element;
  const int64_t moments = plan.config.offload.optimizer == Place::kFile
                              ? offload_window_bytes(flat_layout.count, element)
                              : 2 * flat;
  const bool is_first = plan.mesh.coordinate(part.rank, "tp") == 0;
  const int64_t saved = flat - (is_first ? 0 : whole_elements(model) * element);
  return {
      {{"parameters", flat}, {"gradients", part.gradient_buffers * flat}, {"optimizer", moments}},
      part.data_coordinate == 0 ? saved : 0};
}

HeldState held_state(const Plan& plan, int64_t micro_batch, const ModelFacts& model,
                     const RankPart& part) {
  const StableGrains grains = stable_grains(plan);
  if (const auto shards = shards_of(plan, part.rank)) {
    const int shard = shard_index(plan, part.rank);
    const bool accumulates = micro_batch < part.samples;
    const int64_t grain_buffers = grains.count == 0 ? 0 : part.gradient_buffers;
    return {
        state_lines(*shards, shard, {.accumulates = accumulates, .grain_buffers = grain_buffers}),
        plan.mesh.coordinate(part.rank, "dp") == 0 ? shard_bytes(*shards, shard) : 0};
  }
  if (plan.config.parallel.data != Sharding::kServer) return whole_state(plan, model, part);
  const int64_t element = parameter_bytes(plan.kernels.precision);
  const ServerPlan served = serve_model(model.parameter_sizes(), element,
                                        plan.mesh.num_data_coordinates(), grains.owners);
  return {server_lines(served, part.data_coordinate, part.gradient_buffers,
                       message_bytes(plan.config.comm)),
          served.shares.range_of(part.data_coordinate).size() * element};
}

/// Scratch of hanji's blocked kernels; that of vectors for those of the plan's kernels or else of this processor.
int64_t attention_scratch(const Plan& plan, const ModelFacts& model) {
  const auto layer = std::ranges::find_if(
      model.layers, [](const LayerFacts& one) { return one.in_attention.has_value(); });
  const bool on_cpu = plan.config.compute.device == Device::kCpu;
  if (layer == model.layers.end() || plan.kernels.attention == Attention::kFlash || !on_cpu) {
    return 0;
  }
  if (plan.kernels.attention == Attention::kTiles) {
    const AttentionFacts& tiled = *layer->attention;
    return static_cast<int64_t>(sizeof(float)) *
           base::TileAttentionExtent::of(tiled.rows, tiled.width).backward_elements();
  }
  const Result<base::Simd> usable = base::usable_simd();
  const base::Simd simd = plan.kernels.simd.value_or(usable.ok() ? *usable : base::Simd::kBaseline);
  const int64_t element = parameter_bytes(plan.kernels.precision);  // bf16 is computed in float32
  const AttentionFacts& attention = *layer->attention;
  return element * base::AttentionExtent::of(attention.rows, attention.width,
                                             2 * base::vector_bytes(simd) / element)
                       .backward_elements();
}

/// Whether backward cannot write gradients to where they are added up: sharded ones are there once for
/// several units, and those of later micro-batches are added to those of the first.
bool has_gradients_apart(const Plan& plan, int64_t micro_batch, const RankPart& part) {
  if (stable_grains(plan).count > 0) return false;
  const Sharding data = plan.config.parallel.data;
  return micro_batch < part.samples || (cuts_states(data) && data != Sharding::kZero1);
}

int64_t workspace_of(const Plan& plan, int64_t micro_batch, const ModelFacts& model,
                     const RankPart& part) {
  const int64_t samples = std::min(micro_batch, part.samples);
  const int64_t element = parameter_bytes(plan.kernels.precision);
  BackwardMemory beside{.attention_scratch = attention_scratch(plan, model)};
  const bool served = plan.config.parallel.data == Sharding::kServer;
  // Layers of stages are numbered otherwise than their parameters.
  const bool by_layer = model.has_gradient_slots && !served && plan.mesh.degree("pp") == 1;
  if (by_layer && has_gradients_apart(plan, samples, part)) beside.gradient_bytes = element;
  const int64_t workspace = workspace_bytes(model, samples, beside);
  if (by_layer) return workspace;
  // A server's worker keeps the gradients of backward until it pushes them: those of one micro-batch
  // beside what the next one's backward holds, which adds to them. For the norm of blocks it gathers all.
  const bool keeps_gradients =
      served && samples > 0 && (!model.has_gradient_slots || plan.config.train.cuts.features > 1);
  const int64_t gradients = keeps_gradients ? model.num_parameters() * element : 0;
  // A gradient that is added to an earlier one exists beside it.
  const bool adds = samples < part.samples && stable_grains(plan).count == 0;
  const int64_t added = std::max(gradients, std::ranges::max(model.parameter_sizes()) * element);
  return adds ? workspace + added : std::max(workspace, gradients);
}

std::vector<MemoryLine> lines_of(const Plan& plan, int64_t micro_batch, const RankPart& part) {
  const ModelFacts model = facts_of_rank(plan, part.rank);
  const Config& config = plan.config;
  const int64_t samples = std::min(micro_batch, part.samples);
  const int64_t element = parameter_bytes(plan.kernels.precision);
  const bool has_grains = stable_grains(plan).count > 0;
  auto [lines, saved] = held_state(plan, micro_batch, model, part);
  if (has_grains) {
    const auto uses = gradient_buckets(model.tied_sizes(), config.comm.bucket_bytes).flat.count;
    const auto found = std::ranges::find(lines, "gradients", &MemoryLine::category);
    if (found != lines.end()) found->bytes += part.gradient_buffers * uses * element;
  }
  const RankStep step = step_of(plan, samples, part);
  if (gathers_parameters(plan)) {
    const Gathers gathers = gathers_of(plan, part.rank, step.actions, reshard_of(plan));
    lines.push_back({"unsharded units", gathers.peak_elements * element});
  }
  lines.push_back({"activations", kept_bytes(plan, step)});
  if (plan.mesh.degree("pp") > 1) lines.push_back({"flows", flow_bytes(plan, step)});
  lines.push_back({"workspace", workspace_of(plan, micro_batch, model, part)});
  if (!saves(plan, part.rank)) saved = 0;
  const int64_t state = 3 * saved + (part.rank == 0 ? model.buffer_bytes : 0);
  if (state > 0) lines.push_back({"checkpoint copy", std::min(state, most_copied(config.offload))});
  if (const int64_t staging = staging_bytes(plan, samples, part.rank); staging > 0) {
    lines.push_back({"staging between hosts", staging});
  }
  lines.push_back({"data", data_bytes(plan, micro_batch, part)});
  if (config.compute.device == Device::kCuda) {  // those of the next step are copied meanwhile
    lines.push_back({"batches", 2 * part.samples * plan.model.sample_bytes});
  }
  if (model.buffer_bytes > 0) lines.push_back({"buffers", model.buffer_bytes});
  return lines;
}

void add_lines(std::vector<MemoryLine>& sums, const std::vector<MemoryLine>& lines) {
  for (const MemoryLine& line : lines) {
    const auto sum = std::ranges::find(sums, line.category, &MemoryLine::category);
    if (sum == sums.end()) {
      sums.push_back(line);
    } else {
      sum->bytes += line.bytes;
    }
  }
}

}  // namespace

int64_t largest_share(const Plan& plan) {
  int64_t samples = 0;
  for (const DataShare& share : plan.shares) samples = std::max(samples, share.samples.size());
  return samples;
}

std::vector<MemoryLine> rank_memory(const Plan& plan, int64_t micro_batch, int rank) {
  const bool differs = plan.config.parallel.data != Sharding::kReplicas;
  if (differs) return lines_of(plan, micro_batch, own_part(plan, rank, gradient_buffers(plan)));
  return lines_of(
      plan, micro_batch,
      {rank, plan.mesh.data_coordinate(rank), largest_share(plan), num_gradient_buffers(plan)});
}

std::vector<MemoryLine> largest_rank_memory(const Plan& plan, int64_t micro_batch) {
  std::vector<MemoryLine> most = rank_memory(plan, micro_batch, 0);
  if (plan.mesh.degree("pp") == 1) return most;
  for (const int rank : plan.mesh.data_peers(0)) {
    std::vector<MemoryLine> lines = rank_memory(plan, micro_batch, rank);
    if (total_bytes(lines) > total_bytes(most)) most = std::move(lines);
  }
  return most;
}

std::vector<MemoryLine> largest_lines(const Plan& plan) {
  const std::vector<int64_t> buffers = gradient_buffers(plan);
  std::vector<MemoryLine> most = plan.memory;
  for (MemoryLine& line : most) line.bytes = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    for (const MemoryLine& line : lines_of(plan, plan.micro_batch, own_part(plan, rank, buffers))) {
      const auto found = std::ranges::find(most, line.category, &MemoryLine::category);
      if (found == most.end()) {
        most.push_back(line);
      } else {
        found->bytes = std::max(found->bytes, line.bytes);
      }
    }
  }
  return most;
}

int64_t peak_of_ranks(const Plan& plan) {
  const std::vector<int64_t> buffers = gradient_buffers(plan);
  int64_t peak = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const auto own = lines_of(plan, plan.micro_batch, own_part(plan, rank, buffers));
    peak = std::max(peak, total_bytes(own));
  }
  return peak;
}

std::vector<MemoryLine> process_lines(const Plan& plan, const std::vector<MemoryLine>& tensors,
                                      int ranks) {
  if (plan.process.private_bytes == 0) return {};
  const int64_t of_passes = line_bytes(tensors, "activations") + line_bytes(tensors, "workspace");
  const auto kept = static_cast<int64_t>(kKeptByMalloc * static_cast<double>(of_passes));
  return {{"process", ranks * plan.process.private_bytes},
          {"kept by malloc", kept + ranks * kKeptByLibraries}};
}

int64_t resident_bytes(const Plan& plan) {
  if (plan.process.private_bytes == 0) return 0;
  const std::vector<int64_t> buffers = gradient_buffers(plan);
  int64_t peak = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const auto own = lines_of(plan, plan.micro_batch, own_part(plan, rank, buffers));
    peak = std::max(peak, total_bytes(own) + total_bytes(process_lines(plan, own)));
  }
  return peak + plan.process.library_bytes;
}

std::vector<int> readers_of(const Plan& plan, int rank) {
  std::vector<int> readers = plan.mesh.data_peers(rank);
  const int host = plan.hosts.host_of(rank);
  std::erase_if(readers, [&](int peer) { return plan.hosts.host_of(peer) != host; });
  return readers;
}

int64_t cache_bytes(const Plan& plan) {
  const DataConfig& data = plan.config.data;
  return data.cache == FileCache::kProcess ? data.pages * plan.data.page_bytes : 0;
}

int most_ranks_on_host(const Plan& plan) {
  return plan.hosts.several() ? std::ranges::max(plan.hosts.ranks) : plan.ranks;
}

std::vector<MemoryLine> host_memory(const Plan& plan) {
  const std::vector<int> one_host = {plan.ranks};
  const std::vector<int64_t> buffers = gradient_buffers(plan);
  std::vector<MemoryLine> most;
  int first = 0;
  for (const int num_ranks : plan.hosts.several() ? plan.hosts.ranks : one_host) {
    std::vector<MemoryLine> host;
    for (int rank = first; rank < first + num_ranks; ++rank) {
      add_lines(host, lines_of(plan, plan.micro_batch, own_part(plan, rank, buffers)));
    }
    if (total_bytes(host) > total_bytes(most)) most = std::move(host);
    first += num_ranks;
  }
  return most;
}

}  // namespace hanji::plan
