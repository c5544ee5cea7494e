#include "hanji/train/make_model.h"

#include "hanji/models/make.h"
#include "hanji/parallel/recompute.h"
#include "hanji/train/kernel_choice.h"

namespace hanji::train {
std::shared_ptr<layers::Model> make_model(const plan::Plan& plan, c10::Device device) {
  return models::make(
      plan.config,
      {.kernels = to_compute(plan.kernels), .classes = plan.data.vocabulary, .device = device});
}

std::vector<layers::LayerScope> training_scopes(const plan::Config& config,
                                                const layers::Model& model) {
  if (!config.compute.recompute) return {};
  return {parallel::recompute(model.recomputed_layers())};
}

}  // namespace hanji::train
