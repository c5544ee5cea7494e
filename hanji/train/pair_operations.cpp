#include "hanji/train/pair_operations.h"

#include <algorithm>
#include <map>
#include <utility>

#include "hanji/train/count_facts.h"
#include "hanji/train/make_model.h"
#include "hanji/train/meta_memory.h"

namespace hanji::train {
namespace {

/// A pass that takes more is timed on fewer residues.
constexpr double kMaxPassSeconds = 1;
constexpr int64_t kMaxPassBytes = int64_t{256} << 20;
/// Of such a pass, over the ranks that have copies of its tensors.
constexpr int64_t kReducedPassBytes = int64_t{64} << 20;
constexpr int64_t kFewestResidues = 8;  // of generated pairs
constexpr int64_t kFewestSequences = 2;
/// Of equal blocks the last one differs, whose sequences have no gradient.
constexpr int64_t kTimedBlocks = 2;

struct PassNeeds {
  double seconds = 0;
  int64_t bytes = 0;
  bool fit(int64_t most_bytes) const { return seconds <= kMaxPassSeconds && bytes <= most_bytes; }
};

PassNeeds needs_of(const PartOfPairs& part) {
  const plan::ModelFacts facts = count_pair_facts(part.plan.config, part.plan.data.vocabulary);
  const double flops = facts.product_flops_per_sample() * static_cast<double>(part.samples);
  return {plan::estimated_seconds(flops, 0),
          plan::activation_bytes(facts, part.samples) + plan::workspace_bytes(facts, part.samples)};
}

/// So that each rank, and each block of rows, has at least one.
int64_t fewest_rows(const plan::Config& config, int64_t fewest) {
  return std::max({fewest, config.mesh.axial, config.train.cuts.tokens});
}

/// The calls in an embedding, three blocks and a head, of which the middle one is repeated so many times more.
std::vector<plan::LayerCalls> with_blocks(std::vector<plan::LayerCalls> layers, int64_t more) {
  constexpr int64_t kMiddle = 2;
  const plan::LayerCalls middle = layers.at(kMiddle);
  layers.insert(layers.begin() + kMiddle, static_cast<size_t>(more), middle);
  return layers;
}

std::vector<plan::Operation> of_blocks(plan::Plan plan, int64_t blocks, const RecordPairs& record) {
  plan.config.model.layers = blocks;
  std::vector<plan::Operation> operations;
  for (RecordedOperation& one : record(plan)) operations.push_back(std::move(one.operation));
  return operations;
}

}  // namespace

PartOfPairs with_residues(PartOfPairs part, int64_t residues) {
  plan::Config& config = part.plan.config;
  const double share = static_cast<double>(residues) / static_cast<double>(config.data.residues);
  const auto shared = [&](int64_t size, double by) {
    return static_cast<int64_t>(static_cast<double>(size) * by);
  };
  config.data.sequences =
      std::max(fewest_rows(config, kFewestSequences), shared(config.data.sequences, share));
  // Logits of a row, by which chunks are cut, have the square of its length.
  int64_t& chunk = config.model.chunk_bytes;
  if (chunk > 0) chunk = std::max<int64_t>(1, shared(chunk, share * share));
  config.data.residues = residues;
  part.workload = {open_pairs(config).or_throw()};
  return part;
}

PartOfPairs part_of_pairs(const plan::Plan& plan, int64_t samples, int ranks) {
  PartOfPairs part{.plan = plan, .workload = {}, .samples = samples};
  plan::Config& config = part.plan.config;
  config.model.layers = std::min(config.model.layers, kTimedBlocks);
  const int64_t grain = config.train.grain;
  PassNeeds needs = needs_of(part);
  while (needs.bytes > kMaxPassBytes && part.samples > grain) {
    part.samples = std::max(grain, part.samples / 2 / grain * grain);
    needs = needs_of(part);
  }
  int64_t residues = config.data.residues;
  if (!needs.fit(kMaxPassBytes)) {
    const int64_t fewest = fewest_rows(config, kFewestResidues);
    while (residues > fewest && !needs.fit(kReducedPassBytes / ranks)) {
      residues = std::max(fewest, residues / 2);
      part = with_residues(std::move(part), residues);
      needs = needs_of(part);
    }
  }
  return with_residues(std::move(part), residues);
}

std::vector<plan::Operation> pair_operations(const plan::Plan& plan, const RecordPairs& record) {
  const int64_t blocks = plan.config.model.layers, few = std::min(blocks, kTimedBlocks);
  std::vector<plan::Operation> all = of_blocks(plan, few, record);
  if (blocks == few) return all;
  const std::vector<plan::Operation> one_more = of_blocks(plan, few + 1, record);
  std::map<std::string_view, const plan::Operation*> more;
  for (const plan::Operation& one : one_more) more[one.name] = &one;
  for (plan::Operation& one : all) {
    one.layers = with_blocks(more.at(one.name)->layers, blocks - few - 1);
    one.count = 0;
    for (const plan::LayerCalls& layer : one.layers) one.count += layer.all();
  }
  return all;
}

std::vector<RecordedOperation> record_without_memory(const plan::Plan& plan, int64_t samples) {
  const MetaMemory without;
  const auto ranks = static_cast<int>(plan.config.mesh.axial);
  const auto axis = parallel::tensor::Axis::silent(0, ranks, [](const auto&) {});
  const auto model = make_model(plan, {}, c10::kMeta, {.cut = axis});
  const layers::Batch batch = pairs_without_memory(plan.config.data, samples);
  return record_operations(*model, batch, training_scopes(plan.config, *model));
}

}  // namespace hanji::train
