#include "hanji/train/make_model.h"

#include <utility>

#include "hanji/models/make.h"
#include "hanji/parallel/recompute.h"

namespace hanji::train {

std::shared_ptr<layers::Model> make_model(const plan::Plan& plan, const MakeModel& make,
                                          c10::Device device, const ModelAxes& axes,
                                          std::vector<layout::Range> layers) {
  const auto blocks = static_cast<int>(plan.config.train.cuts.features);
  const models::MakeOptions options{.kernels = plan.kernels,
                                    .classes = plan.data.vocabulary,
                                    .device = device,
                                    .axis = axes.cut.in_blocks(blocks),
                                    .context = axes.context,
                                    .layers = std::move(layers)};
  return make ? make(plan.config, options) : models::make(plan.config, options);
}

std::vector<layers::LayerScope> training_scopes(const plan::Config& config,
                                                const layers::Model& model) {
  if (!config.compute.recompute) return {};
  return {parallel::recompute(model.recomputed_layers())};
}

int64_t buffer_bytes(const layers::Model& model) {
  int64_t bytes = 0;
  for (const at::Tensor& one : model.buffers()) bytes += static_cast<int64_t>(one.nbytes());
  return bytes;
}

}  // namespace hanji::train
