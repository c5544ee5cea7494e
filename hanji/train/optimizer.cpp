#include "hanji/train/optimizer.h"

#include <ATen/ops/empty.h>

#include <array>
#include <utility>

namespace hanji::train {
namespace {

std::string saved_name(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNamesOfTorch = {
      {{"first_moment", "exp_avg"},
       {"second_moment", "exp_avg_sq"},
       {"momentum", "momentum_buffer"}}};
  for (const auto& [ours, theirs] : kNamesOfTorch) {
    if (name == ours) return std::string(theirs);
  }
  return name;
}

}  // namespace

parallel::MakeOptimizer optimizer_of(const plan::Plan& plan) {
  const plan::TrainConfig& train = plan.config.train;
  const parallel::AdamWOptions options{
      .beta1 = train.beta1, .beta2 = train.beta2, .epsilon = train.epsilon};
  return [options](parallel::FlatPart part, const parallel::SumOverParts&) {
    return parallel::flat_adamw(std::move(part), options);
  };
}

std::vector<parallel::NamedParameter> moments_of(const parallel::FlatOptimizer& optimizer) {
  std::vector<parallel::NamedParameter> moments = optimizer.state();
  for (parallel::NamedParameter& moment : moments) moment.name = saved_name(moment.name);
  return moments;
}

std::vector<parallel::NamedParameter> moments_of(const std::vector<std::string>& names,
                                                 const at::Tensor& rows) {
  std::vector<parallel::NamedParameter> moments;
  for (const std::string& name : names) moments.push_back({name, rows[std::ssize(moments)]});
  return moments;
}

std::vector<std::string> moment_names(const parallel::MakeOptimizer& make) {
  parallel::FlatPart nothing{at::empty({0}), at::empty({0}), {}};
  std::vector<std::string> names;
  for (const auto& moment : moments_of(*make(std::move(nothing), {}))) {
    names.push_back(moment.name);
  }
  return names;
}

}  // namespace hanji::train
