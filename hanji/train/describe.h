#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "hanji/layers/batch.h"
#include "hanji/layers/model.h"
#include "hanji/models/module_model.h"

namespace hanji::train {

/// describe() of a module that is told apart into layers, and of one that is a layers::Model.
std::string describe_layers(models::LayeredModule module, const layers::Batch& sample,
                            models::ModuleLoss loss);
std::string describe_model(layers::Model& model, const layers::Batch& sample);

/// Returns what a model needs in training as the text of a file for `hanji plan --model FILE.json`,
/// which computes from it the memory of every strategy on any devices.
///
/// `model`: a torch::nn module's holder or std::shared_ptr. Of a Sequential each member is a layer; any
/// other module, whose forward() takes a tensor and returns one, is one layer.
/// `sample`: inputs of one sample or more, and the targets of `loss`. Without a loss it is the sum of
/// the output.
/// Shape   inputs and targets [B, ...], B >= 1: the rows are repeated.
/// Result  counted in a real forward and backward of two and of four samples, as compute.recompute has
///         it too; of a model on the meta device, such as hanji::deferred() returns, nothing is
///         computed and no memory needed. Numbers are those of the model's parameters.
/// Cost    the model in memory with its gradients, and six passes on one thread.
/// Errors  throws kInvalidArgument for no samples and for parameters of several dtypes, kUnsupported
///         for parameters of another dtype than float32, bfloat16 and float64 or on a GPU; as
///         models::ModuleModel and the model itself throw.
/// Thread  this one. Drops the model's gradients, leaves it in training mode, and draws from torch's
///         default generator. Call it before data_parallel and the like.
template <class Holder>
std::string describe(const Holder& model, const layers::Batch& sample,
                     const models::ModuleLoss& loss = {}) {
  const std::shared_ptr module = models::module_of(model);
  if constexpr (std::is_base_of_v<layers::Model, std::decay_t<decltype(*module)>>) {
    return describe_model(*module, sample);
  } else {
    return describe_layers(models::layers_of(module), sample, loss);
  }
}

}  // namespace hanji::train
