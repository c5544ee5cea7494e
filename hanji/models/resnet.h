#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "hanji/base/kernel_choice.h"
#include "hanji/layers/model.h"

namespace hanji::models {

struct ResNetOptions {
  std::vector<int64_t> stages = {2, 2, 2, 2};  ///< Number of blocks per stage.
  bool bottleneck = false;  ///< 1x1, 3x3, 1x1 of four times the width, instead of 3x3, 3x3.
  bool large_stem = true;   ///< 7x7 of stride 2 and pooling, for large images; else 3x3.
  int64_t width = 64;       ///< Channels of the first stage; each further stage has twice as many.
  int64_t classes = 1000;
  uint64_t seed = 1;  ///< Of the initial values.
  base::Precision dtype = base::Precision::kFloat32;
  c10::Device device = c10::kCPU;
  std::vector<layout::Range> own_layers = {};  ///< As MakeOptions::layers.
};

/// Returns the options of "resnet-tiny" (three stages of two basic blocks, 16 wide, small stem),
/// "resnet18" or "resnet50".
/// Errors  throws kInvalidArgument for any other name.
ResNetOptions resnet_preset(std::string_view preset);

/// A residual network for images: stem, blocks, mean over pixels, linear head; stride 2 in the first
/// 3x3 of a stage. Parameters and buffers have the names of torchvision.
///
/// Layers  the stem; each block; the head. The flow is one tensor of pixels [B, channels, h, w].
/// Result  initial values depend only on (seed, parameter name, element): normal with deviation
///         sqrt(2 / fan-out) for convolutions and 0.01 in the head, computed on the CPU. In training,
///         batch normalisation uses the mean and variance of its batch; only update_statistics()
///         updates its running statistics.
/// Source  He, Zhang, Ren, Sun, arXiv:1512.03385, table 1; initial values arXiv:1502.01852.
class ResNetImpl : public layers::Model {
 public:
  /// Errors  throws kInvalidArgument for sizes below 1, fewer than 2 classes, bf16.
  explicit ResNetImpl(const ResNetOptions& options);
  ~ResNetImpl() override;

  int64_t num_layers() const override;

  /// Shape   batch.inputs [B, 3, height, width] float32; the last flow is the logits [B, classes].
  layers::Flow layer(int64_t index, layers::Flow flow, const layers::Batch& batch) override;

  std::vector<at::Tensor> layer_parameters(int64_t index) const override;

  /// Shape   batch.targets [B] int64, of which negative ones are ignored; or the weight of each class,
  ///         [B, classes] of a floating dtype, as of mixed samples.
  layers::LossSum loss(layers::Flow flow, const layers::Batch& batch) override;

  layout::Range recomputed_layers() const override { return {1, num_layers() - 1}; }

  std::string_view metric_name() const override { return "accuracy"; }
  double metric_sum(const layers::Flow& flow, const layers::Batch& batch) const override;

  /// The statistics are mean and unbiased variance of every channel of every normalisation.
  using Model::num_statistics;
  int64_t num_statistics(layout::Range layers) const override;
  std::vector<double> statistics(layout::Range layers) const override;
  void update_statistics(std::span<const double> mean) override;

 private:
  struct Parts;

  ResNetOptions options_;
  std::unique_ptr<Parts> parts_;
};

std::shared_ptr<layers::Model> make_resnet(const ResNetOptions& options);

}  // namespace hanji::models
