#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "hanji/layers/model.h"
#include "hanji/parallel/tensor/blocks.h"
#include "hanji/parallel/tensor/dropout.h"
#include "hanji/parallel/tensor/embedding.h"
#include "hanji/parallel/tensor/linear.h"
#include "hanji/parallel/tensor/loss.h"
#include "hanji/parallel/tensor/norm.h"
#include "hanji/parallel/tensor/regions.h"

namespace hanji::train {

/// A small model of all parts of parallel/tensor but attention, on an axis in blocks. A test overrides
/// what it makes wrong.
class PartsNet : public layers::Model {
 public:
  static constexpr int64_t kTokens = 256, kWidth = 32, kInner = 64, kLength = 8, kUnit = 16;

  using Axis = parallel::tensor::Axis;
  using Broadcast = parallel::tensor::Broadcast;
  using Features = parallel::tensor::Features;
  using Partial = parallel::tensor::Partial;
  using Replicated = parallel::tensor::Replicated;
  template <int64_t kDim>
  using Sharded = parallel::tensor::Sharded<kDim>;
  template <class Placement>
  using Typed = parallel::tensor::Typed<Placement>;
  template <class Placement>
  using Parameter = parallel::tensor::Parameter<Placement>;

  explicit PartsNet(const Axis& axis)
      : Model("PartsNet"),
        axis_(axis),
        cut_{{{"table", {0, {kTokens}, kUnit, axis.num_blocks()}},
              {"positions", {0, {kLength}, 1, axis.num_blocks()}},
              {"up*", {0, {kInner}, kUnit, axis.num_blocks()}},
              {"down", {1, {kInner}, kUnit, axis.num_blocks()}},
              {"*", {}}},
             axis.rank(),
             axis.degree()} {
    add("table", {kTokens, kWidth});
    add("positions", {kLength, kWidth});
    add("norm", {kWidth});
    add("norm_bias", {kWidth});
    add("up", {kInner, kWidth});
    add("up_bias", {kInner});
    add("down", {kWidth, kInner});
    add("down_bias", {kWidth});
  }

  /// Samples of a step beyond this one have no targets.
  int64_t samples_with_targets = std::numeric_limits<int64_t>::max();
  /// Of every loss.
  double loss_scale = 1;

  int64_t num_layers() const override { return 3; }
  layers::Flow layer(int64_t index, layers::Flow flow, const layers::Batch& batch) override {
    if (index == 0) return {sum(embed(batch.inputs), axis_).value() + all_positions()};
    const Typed<Replicated> x(flow[0]);
    if (index == 2) return {column_linear(enter(x, axis_), head()).value()};
    return {
        (x + block(x, {batch.counters.seed, batch.counters.step, batch.positions.begin})).value()};
  }
  layers::LossSum loss(layers::Flow flow, const layers::Batch& batch) override {
    const at::Tensor& logits = flow[0];
    const at::Tensor targets = batch.targets.clone();
    const int64_t counted = num_counted(batch);
    targets.slice(0, counted / kLength).fill_(-1);
    const auto sum =
        cross_entropy_sum(Typed<Features>(logits.view({-1, logits.size(-1)})), targets.view({-1}),
                          axis_, axis_.extents_of(kTokens, kUnit), {head().blocks, {}});
    return {loss_scale == 1 ? sum.value() : sum.value() * loss_scale, counted};
  }
  int64_t num_counted(const layers::Batch& batch) const {
    const int64_t end = std::min(batch.positions.end, samples_with_targets);
    return std::max<int64_t>(0, end - batch.positions.begin) * kLength;
  }
  std::vector<at::Tensor> layer_parameters(int64_t index) const override {
    const auto all = named_parameters();
    if (index == 0) return {all["table"], all["positions"]};
    if (index == 2) return {all["table"]};
    return {all["norm"],    all["norm_bias"], all["up"],
            all["up_bias"], all["down"],      all["down_bias"]};
  }
  layout::Cut cut() const override { return cut_; }

 protected:
  virtual Typed<Partial> embed(const at::Tensor& tokens) const {
    return embedding(tokens, parameter<Sharded<0>>("table"), axis_,
                     axis_.extents_of(kTokens, kUnit));
  }
  virtual at::Tensor all_positions() {
    const Typed<Sharded<0>> own(parameter<Sharded<0>>("positions").weight.value);
    return whole(own, axis_, axis_.extents_of(kLength)).value();
  }
  virtual Typed<Features> drop(const Typed<Features>& x, const compute::DropoutKey& key) const {
    return dropout(x, kDropped, key, axis_, axis_.extents_of(kInner, kUnit));
  }
  virtual Typed<Replicated> add_bias(const Typed<Replicated>& y) const {
    return y + parameter<Replicated>("down_bias");
  }
  virtual Parameter<Sharded<0>> head() const { return parameter<Sharded<0>>("table"); }

  const Axis& axis() const { return axis_; }
  template <class Placement>
  Parameter<Placement> parameter(const std::string& name) const {
    const layout::Placement placement = layout::placement_of(cut_.placements, name).or_throw();
    Parameter<Placement> found{{named_parameters()[name], {}}};
    if (placement.is_cut()) {
      found.blocks = feature_blocks(placement, placement.segments[0], axis_);
    }
    return found;
  }

  static constexpr double kDropped = 0.25;

 private:
  Typed<Replicated> block(const Typed<Replicated>& x, const compute::DropoutKey& key) const {
    const auto normed =
        add_layer_norm<Replicated>(
            x, {}, {parameter<Replicated>("norm"), parameter<Replicated>("norm_bias")}, at::kFloat)
            .normed;
    const auto up = column_linear(enter(normed, axis_), parameter<Sharded<0>>("up"));
    const auto active = drop(bias_gelu(up, parameter<Sharded<0>>("up_bias")), key);
    return add_bias(sum(row_linear(active, parameter<Sharded<1>>("down")), axis_));
  }

  void add(const std::string& name, const std::vector<int64_t>& shape) {
    const at::Tensor index = at::arange(c10::multiply_integers(shape), at::kDouble).view(shape);
    const double scale = name.ends_with("_bias") ? 0 : 0.2;
    const at::Tensor value = (index * 1.7 + static_cast<double>(name.size())).sin() * scale;
    const layout::Placement placement = layout::placement_of(cut_.placements, name).or_throw();
    register_parameter(
        name, parallel::tensor::part_of(value.to(at::kFloat), placement, cut_.index, cut_.degree));
  }

  const Axis axis_;
  const layout::Cut cut_;
};

}  // namespace hanji::train
