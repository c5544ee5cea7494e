#include "hanji/layers/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "hanji/base/status.h"
#include "hanji/trace/ranges.h"

namespace hanji::layers {
namespace {

void check_layers(const Model& model, layout::Range layers) {
  if (layers.begin >= 0 && layers.end <= model.num_layers()) return;
  throw Error(base::invalid_argument(
      fmt::format("{}: layers [{}, {}) of {}; pass a range within [0, {})", model.name(),
                  layers.begin, layers.end, model.num_layers(), model.num_layers())));
}

void check_flow(const Model& model, int64_t layer, const Flow& flow) {
  const bool defined = std::ranges::all_of(flow, &at::Tensor::defined);
  if (defined && !flow.empty() && flow.size() <= kMaxFlowTensors) return;
  throw Error(base::invalid_argument(fmt::format(
      "{}: layer {} returned {} tensors{}; a flow is one to {} defined tensors", model.name(),
      layer, flow.size(), defined ? "" : ", some of them undefined", kMaxFlowTensors)));
}

/// One layer of a forward and what is around it. A scope may keep a copy beyond the forward, hence
/// the batch by value; the scopes outlive the backward.
struct LayerCall {
  Model* model;
  int64_t layer;
  Batch batch;
  std::span<const LayerScope> scopes;

  Flow operator()(Flow flow) const {
    if (scopes.empty()) {
      const trace::Range range("layer", trace::Category::kCompute, layer);
      return model->layer(layer, std::move(flow), batch);
    }
    return scopes[0](layer, std::move(flow), LayerCall{model, layer, batch, scopes.subspan(1)});
  }
};

}  // namespace

Flow Model::forward(layout::Range layers, Flow flow, const Batch& batch,
                    const std::vector<LayerScope>& scopes) {
  check_layers(*this, layers);
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    flow = LayerCall{this, i, batch, scopes}(std::move(flow));
    check_flow(*this, i, flow);
  }
  return flow;
}

int64_t Model::layer_of(const at::Tensor& parameter) const {
  for (int64_t i = 0; i < num_layers(); ++i) {
    const auto read = layer_parameters(i);
    if (std::ranges::any_of(read, [&](const at::Tensor& one) { return one.is_same(parameter); })) {
      return i;
    }
  }
  return 0;
}

LossSum Model::loss_sum(const Batch& batch, const std::vector<LayerScope>& scopes) {
  return loss(forward({0, num_layers()}, {}, batch, scopes), batch);
}

}  // namespace hanji::layers
