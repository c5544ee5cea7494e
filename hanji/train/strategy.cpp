#include "hanji/train/strategy.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "hanji/comm/host_values.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/grad_norm.h"

namespace hanji::train {

bool is_counted(const layout::Cut& cut, std::string_view parameter) {
  return cut.index == 0 || layout::placement_of(cut.placements, parameter).or_throw().is_cut();
}

ModelSlots::ModelSlots(layers::Model& model, const std::vector<parallel::NamedParameter>& learning)
    : model_(model) {
  for (const auto& [name, parameter] : parallel::distinct_parameters(model)) {
    const auto found = std::ranges::find_if(learning, [&](const parallel::NamedParameter& one) {
      return one.tensor.is_same(parameter);
    });
    places_.emplace_back();
    if (found != learning.end()) places_.back() = found - learning.begin();
  }
}

std::vector<at::Tensor> ModelSlots::placed(const std::vector<at::Tensor>& learning) const {
  std::vector<at::Tensor> all;
  for (const auto& place : places_) all.push_back(place ? learning[*place] : at::Tensor());
  return all;
}

void ModelSlots::set(const std::vector<at::Tensor>& slots) {
  model_.set_gradient_slots(placed(slots));
}

std::vector<bool> ModelSlots::rounded() const {
  const std::vector<bool> of_model = model_.rounded_parameters();
  std::vector<bool> learning;
  for (size_t i = 0; i < of_model.size(); ++i) {
    if (!places_[i]) continue;
    learning.resize(std::max(learning.size(), *places_[i] + 1));
    learning[*places_[i]] = of_model[i];
  }
  return learning;
}

void ModelSlots::set_rounded(const std::vector<at::Tensor>& rounded) {
  model_.set_rounded_parameters(rounded.empty() ? rounded : placed(rounded));
}

double norm_of_pieces(const std::vector<at::Tensor>& pieces, const comm::Group& group) {
  double mine = 0;
  for (const at::Tensor& piece : pieces) {
    if (!piece.defined()) continue;
    for (const double squares : parallel::norm_blocks(piece)) mine += squares;
  }
  at::Tensor sum = at::full({1}, mine, at::kDouble);
  comm::all_reduce_on_host(sum, group, {.label = "norm"});
  return std::sqrt(sum.item<double>());
}

}  // namespace hanji::train
