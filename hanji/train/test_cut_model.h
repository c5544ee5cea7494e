#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "hanji/layers/model.h"
#include "hanji/parallel/tensor/axis.h"

namespace hanji::train {

/// A model of two layers whose parameters an axis cuts by rows, by columns, in segments, unevenly and
/// not at all. Every gradient is element-wise, so that a part learns what it learns within the whole, and
/// the loss does not depend on the parameters.
class CutModel : public layers::Model {
 public:
  CutModel(int index, int degree)
      : Model("CutModel"),
        cut_{{{"rows", {0, {10}}},
              {"qkv", {0, {6, 6, 6}}},
              {"columns", {1, {4, 14}, 1}},
              {"inner", {1, {4}}},
              {"norm", {}}},
             index,
             degree} {
    add("rows", {10, 6});
    add("qkv", {18, 5});
    add("norm", {70});
    add("columns", {5, 18});
    add("inner", {3, 4, 6});
    register_buffer("moving", at::arange(3, at::kFloat));
  }

  int64_t num_layers() const override { return 2; }
  layers::Flow layer(int64_t index, layers::Flow flow, const layers::Batch& batch) override {
    at::Tensor sum = flow.empty() ? at::zeros({}) : flow[0];
    for (const at::Tensor& one : layer_parameters(index)) {
      const at::Tensor far = one - 0.1;
      sum = sum + (far * far).sum() * weight_of(batch);
    }
    return {sum};
  }
  std::vector<at::Tensor> layer_parameters(int64_t index) const override {
    const auto all = named_parameters();
    if (index == 0) return {all["rows"], all["qkv"], all["norm"]};
    return {all["columns"], all["inner"]};
  }
  layers::LossSum loss(layers::Flow flow, const layers::Batch& batch) override {
    return {flow[0] - flow[0].detach() + weight_of(batch), batch.num_valid};
  }
  layout::Cut cut() const override { return cut_; }

 private:
  static double weight_of(const layers::Batch& batch) {
    return static_cast<double>(batch.inputs.sum().item<int64_t>() % 7 + 1);
  }

  void add(const std::string& name, const std::vector<int64_t>& shape) {
    const auto placement = layout::placement_of(cut_.placements, name).or_throw();
    const at::Tensor value = at::arange(at::zeros(shape).numel(), at::kFloat).view(shape).sin();
    register_parameter(
        name, parallel::tensor::part_of(value, placement, cut_.index, cut_.degree).contiguous());
  }

  layout::Cut cut_;
};

}  // namespace hanji::train
