#include <algorithm>
#include <cmath>
#include <utility>

#include "hanji/layout/context.h"
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

/// Whether two stages have equal blocks and no other layer.
bool have_as_much(const ModelFacts& one, const ModelFacts& other) {
  const auto is_block = [](const LayerFacts& layer) { return layer.attention.has_value(); };
  return one.layers.size() == other.layers.size() &&
         one.num_parameters() == other.num_parameters() &&
         activation_bytes(one, 1) >= activation_bytes(other, 1) &&
         std::ranges::all_of(one.layers, is_block) && std::ranges::all_of(other.layers, is_block);
}

/// Of a sample, on rank 0 of cp, which has as many as any.
int64_t most_tokens(const ModelSpec& m, const CutOfModel& cut) {
  int64_t tokens = 0;
  for (const layout::Range own :
       layout::context_tokens(m.block, 0, static_cast<int>(cut.cp), cut.context)) {
    tokens += own.size();
  }
  return tokens;
}

int64_t kv_heads_of(const ModelSpec& m) { return m.kv_heads > 0 ? m.kv_heads : m.heads; }

/// Of one sample on the ranks of cp that have the same heads.
layout::ContextAttention attention_of(const ModelSpec& m, const CutOfModel& cut) {
  return {.tokens = m.block,
          .heads = m.heads / cut.tp,
          .kv_heads = kv_heads_of(m) / cut.tp,
          .width = m.width / m.heads,
          .ranks = static_cast<int>(cut.cp)};
}

/// So many equal calls of cp in attention.
struct Exchanges {
  double elements = 0;  ///< That the mean rank sends in each, of one sample.
  int64_t count = 1;
  bool is_backward = false, is_sum = false;
};

/// Those of layout::context_calls(), without a list of every pair of ranks for each step of a ring.
std::vector<Exchanges> exchanges_of(const layout::ContextAttention& a, ContextWay way) {
  const auto ranks = static_cast<double>(a.ranks);
  if (way == ContextWay::kRing) {
    const double passed = static_cast<double>(2 * a.kv_heads * a.width * a.tokens) / ranks;
    const int64_t steps = a.ranks - 1;
    return {
        {passed, steps, false, false}, {passed, steps, true, false}, {passed, steps, true, true}};
  }
  std::vector<Exchanges> all;
  for (const layout::ContextCall& call : layout::context_calls(a, way)) {
    all.push_back({static_cast<double>(call.sent()) / ranks, 1, call.is_backward, call.is_sum});
  }
  return all;
}

/// Makes room for the gradients that a stage adds up, in place of those of two layers; the bytes that it adds.
int64_t whole_gradients(const CapacityQuery& query, std::vector<MemoryLine>& lines) {
  const auto buckets = std::ranges::find(lines, "buckets", &MemoryLine::category);
  const int64_t before =
      std::exchange(buckets->bytes, query.widths.gradient * query.model.num_parameters);
  return buckets->bytes - before;
}

}  // namespace

std::vector<ContextWay> context_ways(const ModelSpec& m, const MeshConfig& mesh) {
  if (mesh.cp == 1) return {ContextWay::kAuto};
  const auto divides = [&](int64_t ranges) {
    return mesh.tp == 1 || (kv_heads_of(m) % mesh.tp == 0 && m.block % ranges == 0);
  };
  std::vector<ContextWay> ways;
  if (m.heads / mesh.tp >= mesh.cp && m.block >= mesh.cp && divides(mesh.cp)) {
    ways.push_back(ContextWay::kUlysses);
  }
  if (m.block >= 2 * mesh.cp && m.dropout == 0 && divides(2 * mesh.cp)) {
    ways.push_back(ContextWay::kRing);
  }
  return ways;
}

MeshChoice MeshPricer::price(const MeshConfig& mesh, Sharding data, const CutOfModel& cut) {
  MeshChoice choice;
  choice.mesh = mesh;
  choice.data = data;
  choice.recompute = cut.recompute;
  choice.sequence = cut.sequence;
  if (gathers_in_stages(choice)) choice.reshard = Reshard::kMicroBatch;
  choice.context = cut.context;
  const Stages& stages = stages_of(cut);
  const int64_t samples = query_.global_batch / coordinates_of(mesh);
  const int64_t micro_batches = samples / query_.micro_batch;
  add_pipeline(stages, micro_batches, cut, choice);
  add_data(stages, micro_batches, choice);
  const Stage& largest = add_memory(stages, micro_batches, choice);
  choice.layer_bytes = largest.call_bytes * static_cast<double>(micro_batches);
  return choice;
}

int64_t MeshPricer::ranks_on_host(const Peers& peers) const {
  return std::max<int64_t>(1, query_.ranks_per_host / peers.stride);
}

/// Of an all_reduce of so many bytes; a gather or reduce_scatter takes half.
double MeshPricer::sum_seconds(double bytes, const Peers& peers) const {
  if (peers.ranks == 1 || bytes == 0) return 0;
  const double inside = 2 * ring(peers.ranks) * bytes / (query_.device.link_rate * kLinkShare);
  const int64_t on_host = ranks_on_host(peers);
  if (peers.ranks <= on_host) return kCallSeconds + inside;
  const int64_t hosts = (peers.ranks + on_host - 1) / on_host;
  const double adapters = query_.network_rate * static_cast<double>(on_host);
  return kCallSeconds + std::max(inside, 2 * ring(hosts) * bytes / adapters);
}

/// Of an all_to_all in which each rank sends so many bytes: to all others alike, or all to the rank before,
/// which for one rank of a host lies on another.
double MeshPricer::exchange_seconds(double bytes, const Peers& peers, ContextWay way) const {
  const double inside = bytes / (query_.device.link_rate * kLinkShare);
  const int64_t others = peers.ranks - ranks_on_host(peers);
  if (others <= 0) return kCallSeconds + inside;
  const bool all_leave = way == ContextWay::kRing;
  const double share =
      all_leave ? 1 : static_cast<double>(others) / static_cast<double>(peers.ranks - 1);
  return kCallSeconds + std::max(inside, share * bytes / query_.network_rate);
}

/// Of the rank that has most tokens.
double MeshPricer::stream_bytes(const CutOfModel& cut) const {
  const int64_t elements = query_.micro_batch * most_tokens(spec_, cut) * spec_.width;
  return static_cast<double>(elements * query_.widths.parameter);
}

/// Of the sums of a residual stream of so many bytes.
MeshPricer::Moved MeshPricer::moved_by_tp(const LayerFacts& layer, int64_t tp,
                                          double stream) const {
  return {calls_of(layer) * 2 * ring(tp) * stream, calls_of(layer) * sum_seconds(stream, {tp})};
}

/// Of a layer with attention.
MeshPricer::Moved MeshPricer::moved_by_cp(const CutOfModel& cut) const {
  Moved moved;
  if (cut.cp == 1) return moved;
  const int64_t width = query_.widths.parameter;
  for (const Exchanges& one : exchanges_of(attention_of(spec_, cut), cut.context)) {
    const int64_t bytes_each = one.is_sum ? std::max<int64_t>(sizeof(float), width) : width;
    const double bytes = one.elements * static_cast<double>(query_.micro_batch * bytes_each);
    const int64_t times = one.count * (cut.recompute && !one.is_backward ? 2 : 1);
    moved.bytes += static_cast<double>(times) * bytes;
    moved.seconds +=
        static_cast<double>(times) * exchange_seconds(bytes, {cut.cp, cut.tp}, cut.context);
  }
  return moved;
}

double MeshPricer::computing_seconds(const LayerFacts& layer) const {
  const double flops = layer.product_flops() + (layer.attention ? layer.attention->flops() : 0);
  const double pass = flops / (query_.device.flops * kProductShare) +
                      layer.elementwise_bytes / query_.device.memory_rate;
  return static_cast<double>(query_.micro_batch) * pass * (layer.is_repeated ? 1 + kAgain : 1);
}

const MeshPricer::Stages& MeshPricer::stages_of(const CutOfModel& cut) {
  auto [found, is_new] = stages_.try_emplace(cut);
  if (is_new) found->second = make_stages(cut);
  return found->second;
}

MeshPricer::Stages MeshPricer::make_stages(const CutOfModel& cut) const {
  ActivationOptions options = facts_options(query_.device, query_.widths);
  options.recompute = cut.recompute;
  const ModelFacts whole = gpt_facts(spec_, options,
                                     {.degree = static_cast<int>(cut.tp),
                                      .sequence = cut.sequence,
                                      .context = static_cast<int>(cut.cp),
                                      .way = cut.context,
                                      .tokens = most_tokens(spec_, cut)});
  const double stream = stream_bytes(cut);
  const Moved in_attention = moved_by_cp(cut);
  std::vector<double> seconds, bytes;
  for (const LayerFacts& layer : whole.layers) {
    const Moved tp = moved_by_tp(layer, cut.tp, stream);
    const Moved cp = layer.attention ? in_attention : Moved();
    seconds.push_back(computing_seconds(layer) + tp.seconds + cp.seconds);
    bytes.push_back(tp.bytes + cp.bytes);
  }
  Stages stages;
  for (const layout::Range layers : cut_stages(seconds, static_cast<int>(cut.pp))) {
    Stage stage{.model = layers_of(whole, layers)};
    for (int64_t i = layers.begin; i < layers.end; ++i) {
      stage.seconds += seconds[i];
      stage.call_bytes += bytes[i];
    }
    stage.needs_less = !stages.empty() && have_as_much(stages.back().model, stage.model);
    stages.push_back(std::move(stage));
  }
  return stages;
}

/// 1F1B: the longest stage's micro-batches, and one of each other stage.
void MeshPricer::add_pipeline(const Stages& stages, int64_t micro_batches, const CutOfModel& cut,
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
  const double flow = 2 * stream_bytes(cut) / static_cast<double>(choice.sequence ? mesh.tp : 1);
  const double message = sum_seconds(flow, {2, coordinates_of(mesh) * mesh.cp * mesh.tp});
  choice.seconds += static_cast<double>(mesh.pp - 1) * message;  // there, and the gradient back
  choice.stage_bytes = 2 * m * flow;
  choice.bubble = choice.seconds / (m * longest) - 1;
}

/// What ranks with other samples, or other tokens of them, exchange, and the update.
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
  const int64_t shards = shards_of(mesh, choice.data);
  const int64_t replicas = coordinates_of(mesh) * mesh.cp / shards;
  const double across = 2 * gradients / static_cast<double>(shards);
  choice.data_bytes = within * ring(shards) + across * ring(replicas);
  choice.seconds += sum_seconds(within, {shards, mesh.tp}) / 2;
  choice.seconds += sum_seconds(across, {replicas, mesh.tp * shards}) / 2;
  add_update(elements / shards, choice);
}

void MeshPricer::add_update(int64_t elements, MeshChoice& choice) const {
  const auto bytes = static_cast<double>(elements * query_.widths.sum());
  choice.seconds += kPassesOfUpdate * bytes / query_.device.memory_rate;
}

/// Of the stage that needs most, which is returned.
const MeshPricer::Stage& MeshPricer::add_memory(const Stages& stages, int64_t micro_batches,
                                                MeshChoice& choice) const {
  CapacityQuery query = of_stage_;
  query.ranks.ranks = static_cast<int>(coordinates_of(choice.mesh) * choice.mesh.cp);
  query.ranks.hybrid_ranks = static_cast<int>(shards_of(choice.mesh, choice.data));
  size_t largest = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].needs_less) continue;
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
