#include "hanji/cost/price.h"

#include <algorithm>
#include <vector>

namespace hanji::cost {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Step;
using schedule::StepKind;
using schedule::StepList;

struct Bytes {
  double tensor = 0;
  double slot = 0;
};

void add(Bytes& bytes, const std::vector<Operand>& operands, double each) {
  for (const Operand& operand : operands) {
    const bool tensor = operand.place == Place::kInput || operand.place == Place::kOutput;
    (tensor ? bytes.tensor : bytes.slot) += each;
  }
}

// bytes[epoch] of one rank.
std::vector<Bytes> epochs_of(const std::vector<Step>& steps, double element_bytes) {
  std::vector<Bytes> epochs(1);
  for (const Step& step : steps) {
    if (step.kind == StepKind::kSync) {
      epochs.emplace_back();
      continue;
    }
    const double each = static_cast<double>(step.count) * element_bytes;
    add(epochs.back(), step.from, each);
    add(epochs.back(), step.to, each);
  }
  return epochs;
}

// What all tensors of the call occupy: inputs and outputs are usually the same memory, so the
// larger of the two counts.
double tensor_bytes(const StepList& list, double element_bytes) {
  double elements = 0;
  for (int rank = 0; rank < list.ranks; ++rank) {
    elements += static_cast<double>(
        std::max(elements_of(list, rank, Place::kInput), elements_of(list, rank, Place::kOutput)));
  }
  return elements * element_bytes;
}

}  // namespace

double price_seconds(const StepList& list, size_t element_bytes, const Rates& rates) {
  const auto width = static_cast<double>(element_bytes);
  const bool cached = tensor_bytes(list, width) <= static_cast<double>(rates.cache_bytes);
  const double slot_rate = rates.cached_bytes_per_second;
  const double tensor_rate = cached ? slot_rate : rates.memory_bytes_per_second;
  // One rank alone gains from the caches by the same factor as all together.
  const double alone = rates.copy_bytes_per_second;
  const double alone_cached = alone * std::max(1.0, slot_rate / rates.memory_bytes_per_second);

  std::vector<double> shared(1), busiest(1);
  for (const auto& steps : list.per_rank) {
    const std::vector<Bytes> epochs = epochs_of(steps, width);
    shared.resize(std::max(shared.size(), epochs.size()));
    busiest.resize(shared.size());
    for (size_t i = 0; i < epochs.size(); ++i) {
      shared[i] += epochs[i].tensor / tensor_rate + epochs[i].slot / slot_rate;
      busiest[i] = std::max(busiest[i], epochs[i].tensor / (cached ? alone_cached : alone) +
                                            epochs[i].slot / alone_cached);
    }
  }
  double seconds = schedule::num_syncs(list) * rates.sync_seconds;
  for (size_t i = 0; i < shared.size(); ++i) seconds += std::max(shared[i], busiest[i]);
  return seconds;
}

Terms price_terms(const StepList& list, size_t element_bytes, const Rates& rates) {
  double all = 0, reduced = 0;
  for (const auto& steps : list.per_rank) {
    for (const Step& step : steps) {
      const auto touched =
          static_cast<double>(step.count) * static_cast<double>(step.from.size() + step.to.size());
      all += touched;
      if (step.kind == StepKind::kReduce) reduced += touched;
    }
  }
  Terms terms;
  terms.rounds = schedule::num_syncs(list);
  terms.latency = terms.rounds * rates.sync_seconds;
  const double moving = price_seconds(list, element_bytes, rates) - terms.latency;
  terms.reduction = all > 0 ? moving * reduced / all : 0;
  terms.bandwidth = moving - terms.reduction;
  return terms;
}

}  // namespace hanji::cost
