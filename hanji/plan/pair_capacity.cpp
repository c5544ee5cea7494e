#include "hanji/plan/pair_capacity.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/plan/memory.h"
#include "hanji/plan/model_family.h"

namespace hanji::plan {
namespace {

using schedule::Routine;

constexpr int64_t kStateTensors = 4;  // a parameter, its gradient and two moments

/// Elements that all ranks send to others together.
int64_t sent_elements(const LayerCall& call, int64_t samples, int64_t ranks) {
  std::vector<int64_t> counts;
  for (const Amount& one : call.counts) counts.push_back(one.of(samples));
  const bool even = counts.size() == 1;
  int64_t sum = 0;
  for (const int64_t one : counts) sum += one;
  if (call.routine == Routine::kAllToAll) {
    if (even) return ranks * (ranks - 1) * sum;
    for (int64_t rank = 0; rank < ranks; ++rank) sum -= counts[rank * ranks + rank];
    return sum;
  }
  if (call.routine == Routine::kAllReduce) return 2 * (ranks - 1) * sum;
  return (ranks - 1) * (even ? ranks * sum : sum);
}

int64_t sent_bytes(const ModelFacts& facts, int64_t samples, int64_t ranks) {
  int64_t bytes = 0;
  for (const LayerFacts& layer : facts.layers) {
    for (const LayerCall& call : layer.calls) {
      bytes +=
          sent_elements(call, samples, ranks) * static_cast<int64_t>(base::size_of(call.dtype));
    }
  }
  return bytes;
}

const ModelFacts& facts_of(const PairRanks& row, TriangleWay way) {
  return way == TriangleWay::kGather ? row.gather : row.channels;
}

/// The most rows of pairs that a rank has, in bytes of one tensor.
int64_t pair_bytes(const PairCapacity& capacity, int64_t ranks) {
  const int64_t n = capacity.config.data.residues;
  return (n + ranks - 1) / ranks * n * capacity.config.model.width *
         parameter_bytes(capacity.config.compute.dtype);
}

std::string seconds_text(double seconds) {
  return seconds == 0 ? "not known" : base::format_seconds(seconds);
}

std::string verdict(const PairCapacity& capacity) {
  const auto first = [&](TriangleWay way) -> std::string {
    for (const PairRanks& row : capacity.rows) {
      if (fits(capacity, row, way)) return fmt::format("on {} or more", row.ranks);
    }
    return fmt::format("on none of up to {}", capacity.rows.back().ranks);
  };
  std::string hint;
  if (!fits(capacity, capacity.rows.back(), TriangleWay::kChannels)) {
    hint = capacity.config.compute.recompute ? "; take more --ranks or a larger --device"
                                             : "; add --recompute, --ranks or a larger --device";
  }
  return fmt::format("fits {}; if triangles gather, {}{}\n",
                     first(TriangleWay::kChannels) + " ranks", first(TriangleWay::kGather), hint);
}

}  // namespace

PairNeeds needs_of(const PairCapacity& capacity, const PairRanks& row, TriangleWay way) {
  const ModelFacts& facts = facts_of(row, way);
  const int64_t samples = capacity.micro_batch;
  const DeviceSpec& device = capacity.device;
  PairNeeds needs{.states = kStateTensors * facts.num_parameters() *
                            parameter_bytes(capacity.config.compute.dtype),
                  .activations = activation_bytes(facts, samples) + samples * facts.sample_bytes,
                  .workspace = workspace_bytes(facts, samples),
                  .sent_bytes = sent_bytes(facts, samples, row.ranks) / row.ranks};
  const bool has_rates = device.flops > 0 && device.memory_rate > 0;
  if (!has_rates || (row.ranks > 1 && device.link_rate <= 0)) return needs;
  double moved = 0;
  for (const LayerFacts& layer : facts.layers) moved += layer.elementwise_bytes;
  const auto count = static_cast<double>(samples);
  needs.seconds =
      count * facts.product_flops_per_sample() / device.flops + count * moved / device.memory_rate;
  if (row.ranks > 1) needs.seconds += static_cast<double>(needs.sent_bytes) / device.link_rate;
  return needs;
}

bool fits(const PairCapacity& capacity, const PairRanks& row, TriangleWay way) {
  const int64_t ranks = capacity.device.shares_host ? row.ranks : 1;
  return ranks * needs_of(capacity, row, way).memory() <= capacity.device.memory_bytes;
}

std::string describe(const PairCapacity& capacity) {
  const Config& config = capacity.config;
  const auto bytes = [](int64_t value) { return base::format_bytes(value); };
  const bool has_sequences = config.data.pairs == Pairs::kContacts;
  std::string text = fmt::format(
      "model      {}: {}; {} parameters\n"
      "sample     {}{}; micro_batch {}{}; a pair tensor has {}\n"
      "device     {}: {}{}; {}\n\n",
      config.model.preset, family_of(config.model).describe(config.model, has_sequences ? 2 : 16),
      capacity.rows[0].channels.num_parameters(), base::counted(config.data.residues, "residue"),
      has_sequences ? fmt::format(", {}", base::counted(config.data.sequences, "sequence")) : "",
      capacity.micro_batch, config.compute.recompute ? ", blocks recomputed" : "",
      bytes(pair_bytes(capacity, 1)), capacity.device.name, bytes(capacity.device.memory_bytes),
      capacity.device.shares_host ? " a host" : "", capacity.device.source);
  text += fmt::format("{:>5}{:>12}{:>12}{:>12}{:>12}{:>12}{:>6}{:>12}{:>12}  {}\n", "ranks",
                      "pair rows", "states", "activations", "workspace", "a rank", "fits", "sent",
                      "seconds", "a rank, if triangles gather");
  for (const PairRanks& row : capacity.rows) {
    const PairNeeds needs = needs_of(capacity, row, TriangleWay::kChannels);
    const PairNeeds gather = needs_of(capacity, row, TriangleWay::kGather);
    const auto yes = [&](TriangleWay way) { return fits(capacity, row, way) ? "yes" : "no"; };
    text +=
        fmt::format("{:>5}{:>12}{:>12}{:>12}{:>12}{:>12}{:>6}{:>12}{:>12}  {}, {}\n", row.ranks,
                    bytes(pair_bytes(capacity, row.ranks)), bytes(needs.states),
                    bytes(needs.activations), bytes(needs.workspace), bytes(needs.memory()),
                    yes(TriangleWay::kChannels), bytes(needs.sent_bytes),
                    seconds_text(needs.seconds), bytes(gather.memory()), yes(TriangleWay::kGather));
  }
  text += "\n" + verdict(capacity);
  return text +
         "Bytes are counted in a forward and backward without memory. Kernels' own buffers and "
         "the\n"
         "allocator's rest are not in them. Seconds are those of the published rates of products,\n"
         "memory and links, one after another: no run is as fast.\n";
}

std::string to_json(const PairCapacity& capacity) {
  base::Json rows = base::Json::array();
  for (const PairRanks& row : capacity.rows) {
    base::Json json = {{"ranks", row.ranks},
                       {"pair_bytes", pair_bytes(capacity, row.ranks)},
                       {"flops", row.channels.product_flops_per_sample() *
                                     static_cast<double>(capacity.micro_batch)}};
    for (const TriangleWay way : {TriangleWay::kChannels, TriangleWay::kGather}) {
      const PairNeeds needs = needs_of(capacity, row, way);
      json[std::string(name_of(way))] = {
          {"state_bytes", needs.states},        {"activation_bytes", needs.activations},
          {"workspace_bytes", needs.workspace}, {"memory_bytes", needs.memory()},
          {"sent_bytes", needs.sent_bytes},     {"seconds", needs.seconds},
          {"fits", fits(capacity, row, way)}};
    }
    rows.push_back(std::move(json));
  }
  const base::Json json = {{"model", capacity.config.model.preset},
                           {"residues", capacity.config.data.residues},
                           {"sequences", capacity.config.data.sequences},
                           {"recompute", capacity.config.compute.recompute},
                           {"micro_batch", capacity.micro_batch},
                           {"device", capacity.device.name},
                           {"device_bytes", capacity.device.memory_bytes},
                           {"ranks", std::move(rows)}};
  return base::dump(json, 1) + "\n";
}

}  // namespace hanji::plan
