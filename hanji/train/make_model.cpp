#include "hanji/train/make_model.h"

#include "hanji/models/gpt.h"
#include "hanji/parallel/recompute.h"
#include "hanji/train/kernel_choice.h"

namespace hanji::train {
namespace {

models::GptOptions gpt_options(const plan::Plan& plan, c10::Device device) {
  const plan::ModelSpec& spec = plan.model;
  const compute::KernelChoice kernels = to_compute(plan.kernels);
  return {.layers = spec.layers,
          .heads = spec.heads,
          .width = spec.width,
          .block = spec.block,
          .vocabulary = spec.vocabulary,
          .dropout = spec.dropout,
          .tied = spec.tied,
          .seed = static_cast<uint64_t>(plan.config.train.seed),
          .dtype = kernels.dtype,
          .attention = kernels.attention,
          .device = device};
}

}  // namespace

std::shared_ptr<layers::Model> make_model(const plan::Plan& plan, c10::Device device) {
  return models::make_gpt(gpt_options(plan, device));
}

std::vector<layers::LayerScope> training_scopes(const plan::Plan& plan,
                                                const layers::Model& model) {
  if (!plan.config.compute.recompute) return {};
  return {parallel::recompute(model.recomputed_layers())};
}

}  // namespace hanji::train
