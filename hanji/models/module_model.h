#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "hanji/layers/model.h"

namespace hanji::models {

/// A module whose forward() is one layer; it takes one tensor and returns one.
struct ModuleLayer {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(at::Tensor)> forward;
};

/// A torch::nn module, and the layers whose forwards in sequence equal its forward.
struct LayeredModule {
  std::shared_ptr<torch::nn::Module> root;
  std::vector<ModuleLayer> layers;
};

/// Takes the output of the last layer and the targets of its samples; returns the sum of their losses,
/// not the mean, and the number of losses.
using ModuleLoss =
    std::function<layers::LossSum(const at::Tensor& output, const at::Tensor& targets)>;

/// A torch::nn module as a Model, with the module's own names.
///
/// In training, torch's default generator of the inputs' device is seeded before each layer from
/// (counters, first sample, layer), so that torch's dropout masks depend only on what they mask. A
/// forward does not change buffers: the values that it would have written are its statistics, and a step
/// writes their mean. That is exact for buffers whose update is linear, as in batch normalisation. On the
/// meta device all buffers count as statistics.
class ModuleModel : public layers::Model {
 public:
  /// Casts floating-point parameters, buffers and later inputs to `dtype`. A forward of the samples of
  /// `probe` shows which buffers change in training.
  /// Errors  throws kInvalidArgument for no layers; kUnsupported, with the name, for a parameter without
  ///         gradient and for a buffer that two layers change; throws as the module.
  ModuleModel(LayeredModule module, ModuleLoss loss, at::ScalarType dtype,
              const layers::Batch& probe);

  int64_t num_layers() const override { return std::ssize(layers_); }
  layers::Flow layer(int64_t index, layers::Flow flow, const layers::Batch& batch) override;
  std::vector<at::Tensor> layer_parameters(int64_t index) const override;
  /// Errors  throws kInvalidArgument for a sum that is not a scalar, and for a count below 0.
  layers::LossSum loss(layers::Flow flow, const layers::Batch& batch) override;

  using Model::num_statistics;
  int64_t num_statistics(layout::Range layers) const override;
  std::vector<double> statistics(layout::Range layers) const override;
  void update_statistics(std::span<const double> mean) override;

  void train(bool on = true) override;

 private:
  struct Buffer {
    std::string name;
    at::Tensor tensor;
    int64_t layer = 0;
    at::Tensor seen = {};  ///< What the last forward would have left.
  };

  void take_over_names();
  void find_moving_buffers(const layers::Batch& probe);

  std::shared_ptr<torch::nn::Module> root_;
  std::vector<ModuleLayer> layers_;
  ModuleLoss loss_;
  at::ScalarType dtype_;
  std::vector<Buffer> moving_;  ///< In order of layers.
};

/// Returns the module of a holder or std::shared_ptr.
template <class Holder>
auto module_of(const Holder& holder) {
  if constexpr (requires { holder.ptr(); }) {
    return holder.ptr();
  } else {
    return holder;
  }
}

/// Returns the layers of a module's holder or std::shared_ptr: the members of a Sequential (hanji's or
/// torch's), or any other module as one layer.
template <class Holder>
LayeredModule layers_of(const Holder& holder) {
  std::shared_ptr module = module_of(holder);
  using Impl = typename decltype(module)::element_type;
  LayeredModule made{.root = module, .layers = {}};
  if constexpr (std::is_base_of_v<torch::nn::SequentialImpl, Impl>) {
    for (const torch::nn::AnyModule& one : *module) {
      made.layers.push_back({one.ptr(), [any = one](at::Tensor input) mutable {
                               return any.forward<at::Tensor>(std::move(input));
                             }});
    }
  } else {
    static_assert(
        requires(Impl & own, at::Tensor input) {
          { own.forward(std::move(input)) } -> std::convertible_to<at::Tensor>;
        },
        "forward() of the module takes one tensor and returns one");
    made.layers.push_back(
        {module, [module](at::Tensor input) { return module->forward(std::move(input)); }});
  }
  return made;
}

}  // namespace hanji::models
