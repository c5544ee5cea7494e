#include <algorithm>
#include <cmath>
#include <utility>

#include "hanji/plan/internal/families.h"
#include "hanji/plan/internal/mesh_pricer.h"
#include "hanji/plan/pipeline_plan.h"

namespace hanji::plan::internal {
namespace {

constexpr double kCallSeconds = 50e-6;  // NCCL's all_reduce of few bytes on 2 to 8 devices
constexpr double kAgain = 1.0 / 3;      // of a pass: its forward
constexpr double kPassesOfUpdate = 2;   // reads and writes the states
constexpr int kCallsOfBlock = 4;        // two all_reduces in forward, two in backward
constexpr int kRepeatedCalls = 2;       // by recomputation

/// Of n ranks: what a ring sends of an all_gather, in parts of the whole.
double ring(int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); }

int calls_of(const LayerFacts& layer) {
  if (!layer.attention) return 1;  // the embeddings', and the head's in backward
  return kCallsOfBlock + (layer.is_repeated ? kRepeatedCalls : 0);
}

/// Layers of a range, and the parameters that they read, of the first of these layers that does.
ModelFacts layers_of(const ModelFacts& whole, layout::Range layers) {
  ModelFacts part;
  part.layers.assign(whole.layers.begin() + layers.begin, whole.layers.begin() + layers.end);
  const auto add = [&](ParameterFacts parameter, int64_t layer) {
    parameter.layer = layer;
    part.parameters.push_back(std::move(parameter));
  };
  for (const ParameterFacts& one : whole.parameters) {
    if (layers.begin <= one.layer && one.layer < layers.end) add(one, one.layer - layers.begin);
  }
  for (size_t i = 0; i < part.layers.size(); ++i) {
    for (const int64_t tied : part.layers[i].tied) {
      const ParameterFacts& parameter = whole.parameters[tied];
      if (parameter.layer < layers.begin) add(parameter, static_cast<int64_t>(i));
    }
  }
  return part;
}

/// Makes room for the gradients that a stage adds up, in place of those of two layers; the bytes that it adds.
int64_t whole_gradients(const CapacityQuery& query, std::vector<MemoryLine>& lines) {
  const auto buckets = std::ranges::find(lines, "buckets", &MemoryLine::category);
  const int64_t before =
      std::exchange(buckets->bytes, query.widths.gradient * query.model.num_parameters);
  return buckets->bytes - before;
}

}  // namespace

MeshChoice MeshPricer::price(const MeshConfig& mesh, Sharding data, const CutOfModel& cut) {
  MeshChoice choice;
  choice.mesh = mesh;
  choice.data = data;
  choice.recompute = cut.recompute;
  choice.sequence = cut.sequence;
  if (gathers_in_stages(choice)) choice.reshard = Reshard::kMicroBatch;
  const Stages& stages = stages_of(cut);
  const int64_t samples = query_.global_batch / coordinates_of(mesh);
  const int64_t micro_batches = samples / query_.micro_batch;
  add_pipeline(stages, micro_batches, choice);
  add_data(stages, micro_batches, choice);
  const Stage& largest = add_memory(stages, micro_batches, choice);
  choice.layer_bytes = largest.call_bytes * static_cast<double>(micro_batches);
  return choice;
}

/// Of an all_reduce of so many bytes; a gather or reduce_scatter takes half.
double MeshPricer::sum_seconds(double bytes, const Peers& peers) const {
  if (peers.ranks == 1 || bytes == 0) return 0;
  const double inside = 2 * ring(peers.ranks) * bytes / (query_.device.link_rate * kLinkShare);
  const int64_t on_host = std::max<int64_t>(1, query_.ranks_per_host / peers.stride);
  if (peers.ranks <= on_host) return kCallSeconds + inside;
  const int64_t hosts = (peers.ranks + on_host - 1) / on_host;
  const double adapters = query_.network_rate * static_cast<double>(on_host);
  return kCallSeconds + std::max(inside, 2 * ring(hosts) * bytes / adapters);
}

double MeshPricer::stream_bytes() const {
  const int64_t elements = query_.micro_batch * spec_.block * spec_.width;
  return static_cast<double>(elements * query_.widths.parameter);
}

double MeshPricer::layer_seconds(const LayerFacts& layer, int64_t tp) const {
  const double flops = layer.product_flops() + (layer.attention ? layer.attention->flops() : 0);
  const double pass = flops / (query_.device.flops * kProductShare) +
                      layer.elementwise_bytes / query_.device.memory_rate;
  return static_cast<double>(query_.micro_batch) * pass * (layer.is_repeated ? 1 + kAgain : 1) +
         calls_of(layer) * sum_seconds(stream_bytes(), {tp});
}

const MeshPricer::Stages& MeshPricer::stages_of(const CutOfModel& cut) {
  auto [found, is_new] = stages_.try_emplace(cut);
  if (is_new) found->second = make_stages(cut);
  return found->second;
}

MeshPricer::Stages MeshPricer::make_stages(const CutOfModel& cut) const {
  ActivationOptions options = facts_options(query_.device, query_.widths);
  options.recompute = cut.recompute;
  const ModelFacts whole =
      gpt_facts(spec_, options, {.degree = static_cast<int>(cut.tp), .sequence = cut.sequence});
  std::vector<double> seconds;
  for (const LayerFacts& layer : whole.layers) seconds.push_back(layer_seconds(layer, cut.tp));
  Stages stages;
  for (const layout::Range layers : cut_stages(seconds, static_cast<int>(cut.pp))) {
    Stage stage{.model = layers_of(whole, layers)};
    for (int64_t i = layers.begin; i < layers.end; ++i) {
      stage.seconds += seconds[i];
      stage.call_bytes += calls_of(whole.layers[i]) * 2 * ring(cut.tp) * stream_bytes();
    }
    stages.push_back(std::move(stage));
  }
  return stages;
}

/// 1F1B: the longest stage's micro-batches, and one of each other stage.
void MeshPricer::add_pipeline(const Stages& stages, int64_t micro_batches,
                              MeshChoice& choice) const {
  double sum = 0, longest = 0;
  for (const Stage& stage : stages) {
    sum += stage.seconds;
    longest = std::max(longest, stage.seconds);
  }
  const auto m = static_cast<double>(micro_batches);
  choice.seconds = (m - 1) * longest + sum;
  const MeshConfig& mesh = choice.mesh;
  if (mesh.pp == 1) return;
  // The residual stream, and the branch that the next layer adds to it.
  const double flow = 2 * stream_bytes() / static_cast<double>(choice.sequence ? mesh.tp : 1);
  const double message = sum_seconds(flow, {2, coordinates_of(mesh) * mesh.tp});
  choice.seconds += static_cast<double>(mesh.pp - 1) * message;  // there, and the gradient back
  choice.stage_bytes = 2 * m * flow;
  choice.bubble = choice.seconds / (m * longest) - 1;
}

/// What ranks with other samples exchange, and the update.
void MeshPricer::add_data(const Stages& stages, int64_t micro_batches, MeshChoice& choice) const {
  int64_t elements = 0;
  for (const Stage& stage : stages) elements = std::max(elements, stage.model.num_parameters());
  const MeshConfig& mesh = choice.mesh;
  const auto gradients = static_cast<double>(query_.widths.gradient * elements);
  const auto parameters = static_cast<double>(query_.widths.parameter * elements);
  const auto passes = static_cast<double>(micro_batches);
  double within = gradients + parameters;
  if (cuts_parameters(choice.data)) within = passes * (gradients + 2 * parameters);
  if (gathers_in_stages(choice)) within = gradients + passes * 2 * parameters;
  const double across = 2 * gradients / static_cast<double>(mesh.fsdp);
  choice.data_bytes = within * ring(mesh.fsdp) + across * ring(mesh.dp);
  choice.seconds += sum_seconds(within, {mesh.fsdp, mesh.tp}) / 2;
  choice.seconds += sum_seconds(across, {mesh.dp, mesh.tp * mesh.fsdp}) / 2;
  add_update(elements / mesh.fsdp, choice);
}

void MeshPricer::add_update(int64_t elements, MeshChoice& choice) const {
  const auto bytes = static_cast<double>(elements * query_.widths.sum());
  choice.seconds += kPassesOfUpdate * bytes / query_.device.memory_rate;
}

/// Of the stage that needs most, which is returned.
const MeshPricer::Stage& MeshPricer::add_memory(const Stages& stages, int64_t micro_batches,
                                                MeshChoice& choice) const {
  CapacityQuery query = query_;
  query.ranks.ranks = static_cast<int>(coordinates_of(choice.mesh));
  query.ranks.hybrid_ranks = static_cast<int>(choice.mesh.fsdp);
  query.recompute = false;  // the stage's facts are those of this choice
  size_t largest = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    query.model.facts = stages[i].model;
    query.model.num_parameters = stages[i].model.num_parameters();
    std::vector<MemoryLine> lines = capacity_of(query, choice.data).rank;
    const auto in_flight = std::min(static_cast<int64_t>(stages.size() - i), micro_batches);
    const int64_t more = (in_flight - 1) * activation_bytes(stages[i].model, query_.micro_batch);
    std::ranges::find(lines, "activations", &MemoryLine::category)->bytes += more;
    const int64_t whole = gathers_in_stages(choice) ? whole_gradients(query, lines) : 0;
    lines.back().bytes += std::llround(query_.slack * static_cast<double>(more + whole));
    if (i > 0 && total_bytes(lines) <= total_bytes(choice.rank)) continue;
    largest = i;
    choice.rank = std::move(lines);
  }
  return stages[largest];
}

}  // namespace hanji::plan::internal
