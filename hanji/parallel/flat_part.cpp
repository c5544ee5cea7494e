#include "hanji/parallel/flat_part.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/parallel/flat_parameters.h"

namespace hanji::parallel {

GroupRule decay_matrices(double weight_decay) {
  return [weight_decay](const NamedParameter& parameter) {
    return ParameterGroup{.weight_decay = parameter.tensor.dim() >= 2 ? weight_decay : 0};
  };
}

std::vector<FlatPiece> flat_pieces(const std::vector<NamedParameter>& parameters,
                                   const layout::FlatLayout& layout, layout::Range part,
                                   const GroupRule& rule) {
  std::vector<FlatPiece> pieces;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t begin = std::clamp(layout.offsets[i], part.begin, part.end);
    const int64_t end = std::clamp(layout.offsets[i] + layout.sizes[i], begin, part.end);
    pieces.push_back({parameters[i].name,
                      parameters[i].tensor.sizes().vec(),
                      begin - layout.offsets[i],
                      {begin - part.begin, end - part.begin},
                      rule(parameters[i])});
  }
  return pieces;
}

FlatPart whole_part(const std::vector<NamedParameter>& parameters, const layout::FlatLayout& layout,
                    const at::Tensor& values, const at::Tensor& gradients, const GroupRule& rule) {
  std::vector<at::Tensor> tensors;
  for (const auto& entry : parameters) tensors.push_back(entry.tensor);
  move_into_flat(tensors, layout, values);
  return {values, gradients, flat_pieces(parameters, layout, {0, layout.count}, rule)};
}

void check_in_memory(const FlatPart& part, std::string_view caller) {
  if (!part.parameters_in && !part.gradients_in) return;
  throw Error(base::unsupported(std::string(caller) + ": the " +
                                (part.parameters_in ? "parameters" : "gradients") +
                                " lie in a file; give the optimizer to offloaded(), which has them "
                                "in memory piece by piece"));
}

void check_reals_in_memory(const FlatPart& part, std::string_view caller) {
  const at::Tensor& parameters = part.parameters;
  const auto type = parameters.scalar_type();
  if (!parameters.is_cpu() || (type != at::kFloat && type != at::kDouble)) {
    throw Error(base::unsupported(std::string(caller) + " of " + parameters.toString() +
                                  "; it takes float32 and float64 on the CPU"));
  }
  check_in_memory(part, caller);
}

at::Tensor zero_state(const FlatPart& part) {
  return part.zeros_like ? part.zeros_like(part.parameters) : at::zeros_like(part.parameters);
}

}  // namespace hanji::parallel
