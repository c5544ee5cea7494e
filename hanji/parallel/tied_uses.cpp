#include "hanji/parallel/tied_uses.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "hanji/base/at_end.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/without_memory.h"

namespace hanji::parallel {
namespace {

namespace autograd = torch::autograd;

bool reads(const layers::Model& model, int64_t layer, const at::Tensor& parameter) {
  return std::ranges::any_of(model.layer_parameters(layer),
                             [&](const at::Tensor& one) { return one.is_same(parameter); });
}

TiedUse use_of(const NamedParameter& parameter, int64_t layer) {
  at::Tensor leaf =
      without_memory(parameter.tensor.sizes(), parameter.tensor.options(),
                     "a use of parameter " + parameter.name + " has its gradient alone");
  leaf.requires_grad_();
  return {parameter, layer, leaf, autograd::impl::gradient_edge(leaf)};
}

/// libtorch's pointers to nodes are of other types in other versions.
template <class Weak>
void point_at(const at::Tensor& parameter, const decltype(autograd::Edge::function)& node,
              void (*set)(const autograd::Variable&, Weak)) {
  set(parameter, Weak(node));
}

void set_accumulator(const at::Tensor& parameter, const autograd::Edge& edge) {
  point_at(parameter, edge.function, &autograd::impl::set_grad_accumulator);
}

}  // namespace

std::vector<TiedUse> tied_uses(const layers::Model& model,
                               const std::vector<layout::Range>& layers) {
  std::vector<TiedUse> uses;
  for (const NamedParameter& parameter : learning_parameters(model)) {
    bool is_first = true;
    for (const layout::Range range : layers) {
      for (int64_t layer = range.begin; layer < range.end; ++layer) {
        if (!reads(model, layer, parameter.tensor)) continue;
        if (!std::exchange(is_first, false)) uses.push_back(use_of(parameter, layer));
      }
    }
  }
  std::ranges::stable_sort(uses, {}, &TiedUse::layer);
  return uses;
}

layers::LayerScope use_scope(std::vector<TiedUse> uses) {
  return [uses = std::move(uses)](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
    std::vector<std::pair<at::Tensor, autograd::Edge>> before;
    const base::AtEnd restore([&] {
      for (const auto& [parameter, edge] : before) set_accumulator(parameter, edge);
    });
    for (const TiedUse& use : uses) {
      if (use.layer != layer) continue;
      const at::Tensor& parameter = use.parameter.tensor;
      before.emplace_back(parameter,
                          autograd::Edge(autograd::impl::try_get_grad_accumulator(parameter), 0));
      set_accumulator(parameter, use.edge);
    }
    return run(std::move(flow));
  };
}

}  // namespace hanji::parallel
