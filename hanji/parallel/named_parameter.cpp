#include "hanji/parallel/named_parameter.h"

#include <torch/nn/module.h>

#include <algorithm>

namespace hanji::parallel {

std::vector<NamedParameter> distinct_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> found;
  for (const auto& item : module.named_parameters()) {
    const bool seen = std::ranges::any_of(
        found, [&](const NamedParameter& entry) { return entry.tensor.is_same(item.value()); });
    if (item.value().defined() && !seen) found.push_back({item.key(), item.value()});
  }
  return found;
}

std::vector<NamedParameter> learning_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> found = distinct_parameters(module);
  std::erase_if(found, [](const NamedParameter& entry) { return !entry.tensor.requires_grad(); });
  return found;
}

}  // namespace hanji::parallel
