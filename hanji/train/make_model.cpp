#include "hanji/train/make_model.h"

#include "hanji/models/gpt.h"
#include "hanji/parallel/recompute.h"

namespace hanji::train {
namespace {

compute::Dtype dtype_of(plan::Precision precision) {
  switch (precision) {
    case plan::Precision::kFloat32: return compute::Dtype::kFloat32;
    case plan::Precision::kBFloat16: return compute::Dtype::kBFloat16;
    case plan::Precision::kFloat64: return compute::Dtype::kFloat64;
  }
  return compute::Dtype::kFloat32;
}

models::GptOptions gpt_options(const plan::Plan& plan, c10::Device device) {
  const plan::ModelSpec& spec = plan.model;
  return {.layers = spec.layers,
          .heads = spec.heads,
          .width = spec.width,
          .block = spec.block,
          .vocabulary = spec.vocabulary,
          .dropout = spec.dropout,
          .tied = spec.tied,
          .seed = static_cast<uint64_t>(plan.config.train.seed),
          .dtype = dtype_of(plan.kernels.precision),
          .attention = plan.kernels.attention == plan::Attention::kFlash
                           ? compute::Attention::kFlash
                           : compute::Attention::kMath,
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
