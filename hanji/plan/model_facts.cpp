#include "hanji/plan/model_facts.h"

#include <algorithm>

namespace hanji::plan {
namespace {

// Of fewer rows even the largest result can be small by cancellation, and every error large beside it.
constexpr int64_t kMinMeasuredRows = 16;
constexpr int64_t kMaxMeasuredRows = 64;

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

int64_t activation_bytes(const ModelFacts& model, int64_t samples) {
  int64_t bytes = 0;
  for (const LayerFacts& layer : model.layers) bytes += layer.kept.of(samples);
  return bytes;
}

int64_t workspace_bytes(const ModelFacts& model, int64_t samples) {
  int64_t kept = 0, most = 0;
  for (const LayerFacts& layer : model.layers) {
    kept += layer.kept.of(samples);
    most = std::max(most, kept + layer.backward.of(samples));
  }
  return most - kept;
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
