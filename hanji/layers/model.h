#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hanji/layers/batch.h"
#include "hanji/layers/flow.h"
#include "hanji/layout/placement.h"
#include "hanji/layout/range.h"

namespace hanji::layers {

/// A model as a list of layers and a loss: what a pipeline may cut, fsdp may gather and
/// recomputation may repeat is a layer.
///
/// A layer reads the flow, the batch and its own parameters. What it leaves for the next layer to
/// add (a bias, a residual branch) is part of the flow. Parameters are named as in checkpoints; names
/// know nothing of layers, stages or axes.
/// Thread  one at a time per model.
class Model : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  virtual int64_t num_layers() const = 0;

  /// Runs layer `index` of [0, num_layers()). Layer 0 takes batch.inputs and an empty flow.
  virtual Flow layer(int64_t index, Flow flow, const Batch& batch) = 0;

  /// The parameters that layer `index` reads; a tied weight is one of every layer that reads it.
  virtual std::vector<at::Tensor> layer_parameters(int64_t index) const = 0;
  /// The first layer that reads `parameter`, to which it belongs; 0 if none does.
  int64_t layer_of(const at::Tensor& parameter) const;

  /// Returns the loss of the flow of the last layer.
  ///
  /// Cost    may overwrite the flow with its gradient: call backward() at most once.
  virtual LossSum loss(Flow flow, const Batch& batch) = 0;

  /// What evaluation counts beside the loss, as "accuracy"; empty: nothing.
  virtual std::string_view metric_name() const { return {}; }
  /// Of the flow of the last layer, before loss() takes it: the sum over valid targets.
  virtual double metric_sum(const Flow& /*flow*/, const Batch& /*batch*/) const { return 0; }

  /// How many numbers of a batch move the model's buffers (running statistics); 0: it has none.
  virtual int64_t num_statistics() const { return 0; }
  /// Those of the last forward in training. Running a layer again on the same batch, as
  /// recomputation does, changes none.
  virtual std::vector<double> statistics() const { return {}; }
  /// Moves the buffers once, by the mean of the statistics of all batches of a step. Nothing else
  /// writes to buffers.
  virtual void update_statistics(std::span<const double> /*mean*/) {}

  /// The layers that recomputation repeats: those that keep more than the flow they are given.
  virtual layout::Range recomputed_layers() const { return {0, num_layers()}; }

  /// How the axis tp cuts the parameters, which have their whole names and this rank's sizes.
  virtual layout::Cut cut() const { return {}; }

  /// Offers memory, in the order of parameters(), into which backward may write a parameter's
  /// gradient while its .grad is undefined; .grad then shares it and needs no copy. Empty: none. A
  /// model that takes none copies nothing.
  ///
  /// Shape   as the parameter, contiguous, same dtype.
  virtual void set_gradient_slots(std::vector<at::Tensor> /*slots*/) {}

  /// Runs `layers` in order, each inside the scopes, the first scope outermost. Scopes live until
  /// backward() is over: one that repeats a layer is called there.
  ///
  /// Result  the flow of the last of them.
  /// Errors  throws kInvalidArgument for layers outside [0, num_layers()) and for a layer that
  ///         returns no tensor, an undefined one or more than kMaxFlowTensors; what a layer or scope
  ///         throws.
  Flow forward(layout::Range layers, Flow flow, const Batch& batch,
               const std::vector<LayerScope>& scopes = {});

  /// Runs all layers and the loss.
  LossSum loss_sum(const Batch& batch, const std::vector<LayerScope>& scopes = {});
};

}  // namespace hanji::layers
