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

/// A module whose forward() is one layer: a tensor to a tensor.
struct ModuleLayer {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(at::Tensor)> forward;
};

/// A torch::nn module, and the layers whose forwards, one after another, are its own.
struct LayeredModule {
  std::shared_ptr<torch::nn::Module> root;
  std::vector<ModuleLayer> layers;
};

/// From the output of the last layer and the targets of its samples to the sum of their losses, not
/// the mean, and how many losses that are.
using ModuleLoss =
    std::function<layers::LossSum(const at::Tensor& output, const at::Tensor& targets)>;

/// A torch::nn module as a Model, under the module's own names.
///
/// In training, torch's default generator of the inputs' device is seeded before each layer from
/// (counters, first sample, layer): masks of torch's dropout depend on what they mask. Each forward
/// finds the buffers as the last step left them, and leaves them so: what it would have written there
/// are its statistics, and their mean is what a step writes. Exact for buffers that move linearly,
/// as those of batch normalisation do. Of a module on the meta device all buffers count as such.
class ModuleModel : public layers::Model {
 public:
  /// Casts floating-point parameters and buffers to `dtype`, and later inputs too. `probe`: a few
  /// samples, whose forward shows which buffers move in training.
  /// Errors  throws kInvalidArgument for no layers; kUnsupported, by name, for a parameter without gradient and for a buffer that
  ///         moves in two layers; what the module throws.
  ModuleModel(LayeredModule module, ModuleLoss loss, at::ScalarType dtype,
              const layers::Batch& probe);

  int64_t num_layers() const override { return std::ssize(layers_); }
  layers::Flow layer(int64_t index, layers::Flow flow, const layers::Batch& batch) override;
  std::vector<at::Tensor> layer_parameters(int64_t index) const override;
  /// Errors  throws kInvalidArgument for a sum that is not one number, and for a count below 0.
  layers::LossSum loss(layers::Flow flow, const layers::Batch& batch) override;

  int64_t num_statistics() const override;
  std::vector<double> statistics() const override;
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
  std::vector<Buffer> moving_;
};

/// The module of its holder or std::shared_ptr.
template <class Holder>
auto module_of(const Holder& holder) {
  if constexpr (requires { holder.ptr(); }) {
    return holder.ptr();
  } else {
    return holder;
  }
}

/// The layers of a module's holder or std::shared_ptr: of a Sequential, hanji's or torch's, its
/// members; of any other module itself.
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
