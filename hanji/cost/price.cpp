#include "hanji/cost/price.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "hanji/cost/select.h"
#include "hanji/cost/usage.h"

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

// What all tensors of the call occupy where inputs and outputs are the same memory: the larger of
// the two counts.
double working_set(const StepList& list, double element_bytes) {
  double elements = 0;
  for (int rank = 0; rank < list.ranks; ++rank) {
    elements += static_cast<double>(
        std::max(elements_of(list, rank, Place::kInput), elements_of(list, rank, Place::kOutput)));
  }
  return elements * element_bytes;
}

double seconds_by_rates(const StepList& list, double width, const Rates& rates) {
  const bool cached = working_set(list, width) <= static_cast<double>(rates.cache_bytes);
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

Terms terms_by_rates(const StepList& list, double width, const Rates& rates) {
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
  const double moving = seconds_by_rates(list, width, rates) - terms.latency;
  terms.reduction = all > 0 ? moving * reduced / all : 0;
  terms.bandwidth = moving - terms.reduction;
  return terms;
}

// In the order of unknowns_of(): the common ones, then those of each level.
constexpr std::array<std::string_view, kCommonUnknowns> kCommonNames = {"call", "meet", "step",
                                                                        "wake up"};
constexpr std::array<std::string_view, 7> kLevelNames = {
    "read", "write", "update in place", "pass", "claim", "shared bus", "combine"};
constexpr size_t kUpdate = 2;
constexpr size_t kCombine = kLevelNames.size() - 1;

bool is_fitted(const StepList& list, const Rates& rates) {
  return rates.fitted && rates.fitted->ranks == list.ranks;
}

struct FittedParts {
  std::array<double, kCommonNames.size()> common = {};
  std::array<double, kLevelNames.size()> moving = {};
};

FittedParts parts_of(const StepList& list, const Element& element, const FittedCosts& costs) {
  const std::vector<double> usage = usage_of(list, element, costs);
  const std::vector<double> prices = unknowns_of(costs);
  FittedParts parts;
  for (size_t i = 0; i < usage.size(); ++i) {
    const double seconds = usage[i] * prices[i];
    if (i < kCommonUnknowns) {
      parts.common[i] += seconds;
    } else {
      parts.moving[std::min((i - kCommonUnknowns) % kLevelUnknowns, kCombine)] += seconds;
    }
  }
  const double factor =
      correction_of(costs, list.routine, list.algorithm, element, tensor_bytes(list, element));
  for (double& seconds : parts.common) seconds *= factor;
  for (double& seconds : parts.moving) seconds *= factor;
  return parts;
}

Terms terms_by_fit(const StepList& list, const Element& element, const FittedCosts& costs) {
  const FittedParts parts = parts_of(list, element, costs);
  Terms terms;
  terms.rounds = schedule::num_syncs(list);
  for (const double seconds : parts.common) terms.latency += seconds;
  for (size_t i = 0; i < parts.moving.size(); ++i) {
    (i == kUpdate || i == kCombine ? terms.reduction : terms.bandwidth) += parts.moving[i];
  }
  return terms;
}

}  // namespace

double price_seconds(const StepList& list, const Element& element, const Rates& rates) {
  if (is_fitted(list, rates)) return terms_by_fit(list, element, *rates.fitted).seconds();
  return seconds_by_rates(list, static_cast<double>(element.bytes), rates);
}

double price_seconds(Query query, Chooser& chooser) {
  const bool in_heap = std::exchange(query.in_heap, true);  // which the choice assumes
  const Selection& chosen = chooser.select(query);
  const Element element(static_cast<size_t>(query.element_bytes), query.dtype, in_heap);
  return price_seconds(in_heap ? *chosen.in_heap : *chosen.if_private, element, chooser.rates());
}

Terms price_terms(const StepList& list, const Element& element, const Rates& rates) {
  if (is_fitted(list, rates)) return terms_by_fit(list, element, *rates.fitted);
  return terms_by_rates(list, static_cast<double>(element.bytes), rates);
}

std::vector<Part> price_parts(const StepList& list, const Element& element, const Rates& rates) {
  std::vector<Part> parts;
  if (!is_fitted(list, rates)) return parts;
  const FittedParts all = parts_of(list, element, *rates.fitted);
  const auto add = [&](std::string_view name, double seconds) {
    if (seconds > 0) parts.push_back({name, seconds});
  };
  for (size_t i = 0; i < all.common.size(); ++i) add(kCommonNames[i], all.common[i]);
  for (size_t i = 0; i < all.moving.size(); ++i) add(kLevelNames[i], all.moving[i]);
  std::ranges::stable_sort(parts, std::greater(), &Part::seconds);
  return parts;
}

}  // namespace hanji::cost
