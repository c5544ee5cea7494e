#include "hanji/parallel/master_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <string>

#include "hanji/base/status.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/flat_parameters.h"

namespace hanji::parallel {

MasterWeights::MasterWeights(torch::nn::Module& module, const comm::Group& group,
                             const MixedPrecision& policy) {
  if (!c10::isFloatingType(policy.parameters) || !c10::isFloatingType(policy.buffers)) {
    throw Error(base::invalid_argument(
        std::string("mixed precision of ") + c10::toString(policy.parameters) + " parameters and " +
        c10::toString(policy.buffers) + " buffers; both are floating types"));
  }
  const at::NoGradGuard no_grad;
  for (const NamedParameter& entry : learning_parameters(module)) {
    values_.push_back({entry.name, entry.tensor.detach().to(at::kFloat, false, /*copy=*/true)});
  }
  check_same_structure(values_, group);
  broadcast_from_first(values_, group);
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : module.buffers()) {
    buffers.push_back(buffer.is_floating_point() ? buffer.to(policy.buffers, false, /*copy=*/true)
                                                 : buffer.clone());
  }
  module.to(policy.parameters);
  const auto converted = module.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) converted[i].set_data(buffers[i]);
  parameters_ = learning_parameters(module);
  for (const NamedParameter& entry : parameters_) placed_.add(entry);
  publish();
}

FlatPart MasterWeights::part(const layout::FlatLayout& layout, const at::Tensor& gradients,
                             const GroupRule& rule) {
  std::vector<at::Tensor> tensors;
  for (const NamedParameter& entry : values_) tensors.push_back(entry.tensor);
  const at::Tensor flat = at::zeros({layout.count}, tensors.at(0).options());
  move_into_flat(tensors, layout, flat);
  return {flat, gradients, flat_pieces(values_, layout, {0, layout.count}, rule)};
}

void MasterWeights::publish() const {
  if (placed_.any_replaced()) {
    throw Error(base::invalid_argument(
        "publish: the memory of " + placed_.replaced() +
        " was replaced, by torch::load(), Module::to(), set_data() or the like, and the master "
        "weights have other values; write to values(), or load the module before MasterWeights"));
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < values_.size(); ++i) {
    parameters_[i].tensor.detach().copy_(values_[i].tensor);
  }
}

}  // namespace hanji::parallel
