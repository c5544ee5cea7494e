#include "hanji/train/served_strategy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/shared_tensor.h"
#include "hanji/layers/model.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/plan/server_plan.h"
#include "hanji/train/optimizer.h"

namespace hanji::train {

ServedStrategy::ServedStrategy(layers::Model& model, const comm::Group& group,
                               parallel::ParameterServerOptions options)
    : model_(model),
      group_(group),
      parameters_(parallel::learning_parameters(model)),
      names_(moment_names(options.make_optimizer)),
      moments_(comm::shared_zeros({std::ssize(names_), parallel::flat_layout_of(parameters_).count},
                                  parameters_[0].tensor.scalar_type(), 0, group_, "optimizer")) {
  const plan::ServerPlan served =
      plan::serve_model(parallel::flat_layout_of(parameters_).sizes, moments_.element_size(),
                        group_.size(), options.owners);
  const layout::Range range = served.shares.range_of(group_.rank());
  options.make_optimizer = [this, range, make = std::move(options.make_optimizer)](
                               parallel::FlatPart part, const parallel::SumOverParts& sum) {
    sum_ = part.gradients;
    part.zeros_like = [this, range, next = 0](const at::Tensor&) mutable {
      return moments_[next++].narrow(0, range.begin, range.size());
    };
    return make(std::move(part), sum);
  };
  options.on_sum = [this](at::Tensor& sum) { add_more(sum); };
  server_.emplace(parallel::parameter_server(model, group_, options));
}

void ServedStrategy::begin_step() {
  norm_.reset();
  for (const auto& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  model_.set_gradient_slots(server_->gradient_slots());
}

void ServedStrategy::begin_grain(int64_t index, size_t /*stage*/) {
  server_->grain(index);
  model_.set_gradient_slots(server_->gradient_slots());
}

void ServedStrategy::add_gradient(size_t parameter, const at::Tensor& more) {
  more_.emplace_back(parameter, more);
}

/// To the sum of this rank's range.
void ServedStrategy::add_more(at::Tensor& sum) {
  const layout::FlatLayout& flat = server_->flat_layout();
  const layout::Range own = server_->shares().range_of(group_.rank());
  for (const auto& [parameter, more] : std::exchange(more_, {})) {
    const int64_t first = flat.offsets[parameter];
    const int64_t begin = std::max(own.begin, first);
    const int64_t end = std::min(own.end, first + flat.sizes[parameter]);
    if (begin >= end) continue;
    sum.slice(0, begin - own.begin, end - own.begin)
        .add_(more.flatten().slice(0, begin - first, end - first));
  }
}

/// Pushes the gradients of a step once.
double ServedStrategy::pushed_norm() {
  if (!norm_) norm_ = server_->push();
  return *norm_;
}

double ServedStrategy::gradient_norm() {
  const double norm = pushed_norm();
  const layout::Cut cut = model_.cut();
  if (cut.degree == 1) return norm;
  const layout::FlatLayout& flat = server_->flat_layout();
  const layout::Range own = server_->shares().range_of(group_.rank());
  std::vector<at::Tensor> counted;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t begin = std::max(own.begin, flat.offsets[i]);
    const int64_t end = std::min(own.end, flat.offsets[i] + flat.sizes[i]);
    if (begin >= end || !is_counted(cut, parameters_[i].name)) continue;
    counted.push_back(sum_.slice(0, begin - own.begin, end - own.begin));
  }
  return norm_of_pieces(counted, group_);
}

void ServedStrategy::update(double learning_rate, double gradient_divisor) {
  server_->update(learning_rate, gradient_divisor);
}

FlatState ServedStrategy::state() const {
  return {.layout = server_->flat_layout(),
          .parameters = parameters_,
          .gradients = {},
          .moments = moments_of(names_, moments_),
          .num_updates = server_->optimizer()->num_updates()};
}

void ServedStrategy::set_num_updates(int64_t updates) {
  server_->optimizer()->set_num_updates(updates);
}

OwnState ServedStrategy::own_state() const {
  return {{{0, server_->shares().count}},
          {server_->shares().range_of(group_.rank())},
          group_.rank(),
          group_.size()};
}

std::vector<at::Tensor> ServedStrategy::gradients() {
  const at::NoGradGuard no_grad;
  pushed_norm();
  std::vector<int64_t> counts;
  for (const layout::Range range : server_->shares().ranges) counts.push_back(range.size());
  at::Tensor all = at::zeros({server_->shares().count}, sum_.options());
  comm::all_gather(all, sum_, counts, group_, {.label = "gradients"}).wait();
  return by_parameter(all, server_->flat_layout(), parameters_);
}

comm::Stats ServedStrategy::stats() const {
  comm::Stats stats = group_.stats();
  stats.wire_bytes += server_->moved().sent;
  return stats;
}

}  // namespace hanji::train
