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

/// A model as a list of layers and a loss. A layer is what a pipeline may cut, fsdp may gather and
/// recomputation may repeat.
///
/// A layer reads the flow, the batch and its own parameters. A term that the next layer adds (a bias, a
/// residual branch) is part of the flow. Parameters have the names of checkpoints, which do not contain
/// layers, stages or axes.
/// Thread  one thread at a time uses a model.
class Model : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  virtual int64_t num_layers() const = 0;

  /// Runs layer `index` of [0, num_layers()). Layer 0 reads batch.inputs and receives an empty flow.
  virtual Flow layer(int64_t index, Flow flow, const Batch& batch) = 0;

  /// Returns the parameters that layer `index` reads; a tied weight is returned for every layer that
  /// reads it.
  virtual std::vector<at::Tensor> layer_parameters(int64_t index) const = 0;
  /// Returns the first layer that reads `parameter`, to which it belongs; 0 if no layer reads it.
  int64_t layer_of(const at::Tensor& parameter) const;

  /// Returns the loss of the flow of the last layer.
  ///
  /// Cost    backward() may overwrite the flow with its gradient; call it at most once.
  virtual LossSum loss(Flow flow, const Batch& batch) = 0;

  /// Returns the name of the metric of evaluation besides the loss, such as "accuracy"; empty: no metric.
  virtual std::string_view metric_name() const { return {}; }
  /// Returns the sum of the metric over valid targets, of the flow of the last layer before loss().
  virtual double metric_sum(const Flow& /*flow*/, const Batch& /*batch*/) const { return 0; }

  /// Returns how many numbers of a batch in these layers update the model's buffers (running statistics).
  virtual int64_t num_statistics(layout::Range /*layers*/) const { return 0; }
  int64_t num_statistics() const { return num_statistics({0, num_layers()}); }
  /// Returns the statistics of the last forward of these layers in training, in order of layers.
  /// Recomputing a layer on the same batch does not change them.
  virtual std::vector<double> statistics(layout::Range /*layers*/) const { return {}; }
  /// Updates the buffers with the mean of the statistics of all layers and batches of a step. No other
  /// function writes to buffers.
  virtual void update_statistics(std::span<const double> /*mean*/) {}

  /// Returns the layers that recomputation repeats: those that keep more for backward than their input.
  virtual layout::Range recomputed_layers() const { return {0, num_layers()}; }

  /// Returns how the axis tp cuts the parameters, which have the names of the uncut model and the sizes
  /// of this rank.
  virtual layout::Cut cut() const { return {}; }

  /// Offers memory, in the order of parameters(), into which backward may write a parameter's
  /// gradient while its .grad is undefined; .grad then shares this memory and is not copied. Empty: no
  /// memory. A model may ignore the slots.
  ///
  /// Shape   as the parameter, contiguous, same dtype.
  virtual void set_gradient_slots(std::vector<at::Tensor> /*slots*/) {}

  /// Returns which of parameters() a forward rounds to the dtype of its products, each for one product; empty: none.
  virtual std::vector<bool> rounded_parameters() const { return {}; }
  /// Offers these parameters rounded already, in the order of parameters(), undefined for others; until the
  /// next call, and of each only while no operation of libtorch writes to it. Empty: forwards round.
  virtual void set_rounded_parameters(std::vector<at::Tensor> /*rounded*/) {}

  /// Runs `layers` in order, each inside the scopes, the first scope outermost. Scopes must outlive
  /// backward(), which calls those that repeat a layer.
  ///
  /// Result  the flow of the last layer of the range.
  /// Errors  throws kInvalidArgument for layers outside [0, num_layers()) and for a layer that
  ///         returns no tensor, an undefined one or more than kMaxFlowTensors; throws as the layers and
  ///         the scopes.
  Flow forward(layout::Range layers, Flow flow, const Batch& batch,
               const std::vector<LayerScope>& scopes = {});

  /// Runs all layers and the loss.
  LossSum loss_sum(const Batch& batch, const std::vector<LayerScope>& scopes = {});
};

}  // namespace hanji::layers
