#include "hanji/plan/model_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace hanji::plan {
namespace {

// Of fewer rows even the largest result can be small by cancellation, and every error large beside it.
constexpr int64_t kMinMeasuredRows = 16;
constexpr int64_t kMaxMeasuredRows = 64;

/// Of forward and backward together, what a forward that runs again adds.
constexpr double kForwardAgain = 1.0 / 3;

/// By OperationKind.
constexpr std::array kKinds = {"product", "attention", "embedding", "norm",
                               "gelu",    "loss",      "copy",      "recorded"};

double estimate(const Operation& one) {
  const auto elements = static_cast<double>(one.samples * one.rows * one.columns);
  const auto passes = [&](double count) { return estimated_seconds(0, 4 * count * elements); };
  switch (one.kind) {
    case OperationKind::kProduct:
      return estimated_seconds(6 * elements * static_cast<double>(one.inner), 0);
    case OperationKind::kAttention:
      return estimated_seconds(7 * elements * static_cast<double>(one.rows) / one.ring_ranks, 0);
    case OperationKind::kEmbedding: return passes(4);
    case OperationKind::kNorm: return passes(12);
    case OperationKind::kGelu: return passes(6);
    case OperationKind::kLoss: return passes(4);
    case OperationKind::kCopy: return passes(2);
    case OperationKind::kRecorded: break;
  }
  return 0;
}

/// Of a layer, unnamed.
std::vector<Operation> operations_of(const LayerFacts& layer, int64_t samples) {
  std::vector<Operation> found;
  for (const Product& one : layer.products) {
    found.push_back({.kind = OperationKind::kProduct,
                     .rows = static_cast<int64_t>(one.m),
                     .columns = one.n,
                     .inner = one.k,
                     .count = one.count / Product().count});
  }
  if (const auto& a = layer.attention) {
    found.push_back({.kind = OperationKind::kAttention,
                     .rows = a->rows,
                     .columns = a->heads * a->width,
                     .inner = a->heads,
                     .kv_heads = a->kv_heads,
                     .ring_ranks = a->ring_ranks});
  }
  for (const RowFacts& one : layer.rows) {
    found.push_back({.kind = one.kind,
                     .rows = one.rows,
                     .columns = one.columns,
                     .inner = one.inner,
                     .count = one.count});
  }
  for (Operation& one : found) one.samples = samples;
  for (const Amount& one : layer.copied) {
    found.push_back({.kind = OperationKind::kCopy, .columns = one.of(samples)});
  }
  return found;
}

}  // namespace

double LayerFacts::product_flops() const {
  double flops = 0;
  for (const Product& product : products) flops += product.flops();
  return flops;
}

std::vector<int64_t> ModelFacts::parameter_sizes() const {
  std::vector<int64_t> sizes;
  for (const ParameterFacts& parameter : parameters) sizes.push_back(parameter.elements);
  return sizes;
}

std::vector<int64_t> ModelFacts::tied_sizes() const {
  std::vector<int64_t> sizes;
  for (const LayerFacts& layer : layers) {
    for (const int64_t index : layer.tied) sizes.push_back(parameters.at(index).elements);
  }
  return sizes;
}

ModelFacts ModelFacts::part(int index) const {
  ModelFacts part = *this;
  for (ParameterFacts& one : part.parameters) {
    if (!one.parts.empty()) one.elements = one.parts.at(index);
  }
  return part;
}

int64_t ModelFacts::num_parameters() const {
  int64_t count = 0;
  for (const ParameterFacts& parameter : parameters) count += parameter.elements;
  return count;
}

double ModelFacts::product_flops_per_sample() const {
  double flops = 0;
  for (const LayerFacts& layer : layers) flops += layer.product_flops();
  return flops;
}

double ModelFacts::attention_flops_per_sample() const {
  double flops = 0;
  for (const LayerFacts& layer : layers) flops += layer.attention ? layer.attention->flops() : 0;
  return flops;
}

double ModelFacts::flops_per_target() const {
  return (product_flops_per_sample() + attention_flops_per_sample()) /
         static_cast<double>(targets_per_sample);
}

namespace {

/// Of parameters of earlier layers that a layer reads.
int64_t elements_read_again(const ModelFacts& model, const LayerFacts& layer) {
  int64_t elements = 0;
  for (const int64_t index : layer.tied) elements += model.parameters.at(index).elements;
  return elements;
}

}  // namespace

int64_t activation_bytes(const ModelFacts& model, int64_t samples) {
  int64_t bytes = 0;
  for (const LayerFacts& layer : model.layers) bytes += layer.kept.of(samples);
  return bytes;
}

int64_t workspace_bytes(const ModelFacts& model, int64_t samples, const BackwardMemory& beside) {
  std::vector<int64_t> largest(model.layers.size());  // parameter of each layer
  for (const ParameterFacts& one : model.parameters) {
    if (beside.gradient_bytes == 0) break;
    int64_t& most = largest.at(static_cast<size_t>(one.layer));
    most = std::max(most, one.elements);
  }
  int64_t tied = 0;  // gradients of later layers that wait
  for (const LayerFacts& layer : model.layers) tied += elements_read_again(model, layer);
  int64_t kept = 0, most = 0;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerFacts& layer = model.layers[i];
    const int64_t own = elements_read_again(model, layer);
    tied -= own;
    kept += layer.kept.of(samples);
    const int64_t waiting = kept + tied * beside.gradient_bytes;
    most = std::max(most, waiting + layer.backward.of(samples) +
                              std::max(own, largest[i]) * beside.gradient_bytes);
    if (!layer.in_attention || beside.attention_scratch == 0) continue;
    most = std::max(most, waiting + layer.in_attention->of(samples) + beside.attention_scratch);
  }
  return most - kept;
}

std::vector<Operation> operations_of(const ModelFacts& model, int64_t samples) {
  std::vector<Operation> all;
  for (const LayerFacts& layer : model.layers) {
    for (Operation& one : operations_of(layer, samples)) {
      one.name = fmt::format("{} {} x {} x {} x {}", kKinds[static_cast<size_t>(one.kind)],
                             one.samples, one.rows, one.columns, one.inner);
      if (one.kv_heads > 0) one.name += fmt::format(" on {}", one.kv_heads);
      if (one.ring_ranks > 1) one.name += fmt::format(" in a ring of {}", one.ring_ranks);
      one.estimate = estimate(one);
      if (layer.is_repeated) one.count *= 1 + kForwardAgain;
      const auto known = std::ranges::find(all, one.name, &Operation::name);
      if (known == all.end()) {
        all.push_back(std::move(one));
      } else {
        known->count += one.count;
      }
    }
  }
  return all;
}

KernelShapes kernel_shapes(const ModelFacts& model) {
  const Product* largest = nullptr;
  for (const LayerFacts& layer : model.layers) {
    if (const auto& a = layer.attention) {
      return {.block = a->rows, .width = a->heads * a->width, .heads = a->heads};
    }
    for (const Product& product : layer.products) {
      if (!largest || product.flops() > largest->flops()) largest = &product;
    }
  }
  if (!largest) return {};
  return {.block = std::clamp(static_cast<int64_t>(largest->m), kMinMeasuredRows, kMaxMeasuredRows),
          .width = largest->n,
          .heads = 1};
}

}  // namespace hanji::plan
