#include "hanji/train/gpt_options.h"

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

}  // namespace

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
          .device = device,
          .recompute = plan.config.compute.recompute};
}

}  // namespace hanji::train
