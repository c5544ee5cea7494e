#include "hanji/train/replicated_strategy.h"

#include "hanji/comm/host_values.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/train/adamw_options.h"

namespace hanji::train {
namespace {

parallel::FlatAdamW make_optimizer(models::GptImpl& model, parallel::Replicas& replicas,
                                   const plan::Plan& plan, const comm::Group& group) {
  std::vector<at::Tensor> parameters;
  for (const auto& entry : replicas.parameters()) parameters.push_back(entry.tensor);
  const layout::FlatLayout& flat = replicas.buckets().flat;
  parallel::move_into_flat(parameters, flat,
                           comm::zeros_on(comm::device_of(group), {flat.count},
                                          parameters[0].scalar_type(), group, "parameters"));
  model.set_gradient_slots(replicas.gradient_slots());
  return {parameters, flat, replicas.flat_gradients(), adamw_options(plan)};
}

}  // namespace

ReplicatedStrategy::ReplicatedStrategy(models::GptImpl& model, const plan::Plan& plan,
                                       const comm::Group& group,
                                       const parallel::DataParallelOptions& options)
    : model_(model),
      group_(group),
      replicas_(parallel::data_parallel(model, group, options)),
      optimizer_(make_optimizer(model, replicas_, plan, group)) {}

void ReplicatedStrategy::begin_step() {
  for (const auto& parameter : parameters()) parameter.tensor.mutable_grad().reset();
}

void ReplicatedStrategy::begin_grain(int64_t index) {
  replicas_.grain(index);
  model_.set_gradient_slots(replicas_.gradient_slots());
}

void ReplicatedStrategy::accumulate(const std::function<void()>& backward) {
  const auto only_accumulate = replicas_.accumulate();
  backward();
}

double ReplicatedStrategy::gradient_norm() {
  return parallel::grad_norm(replicas_.flat_gradients(), replicas_.buckets().flat);
}

void ReplicatedStrategy::update(double learning_rate, double gradient_divisor) {
  optimizer_.step(learning_rate, gradient_divisor);
}

FlatState ReplicatedStrategy::state() const {
  return {.layout = replicas_.buckets().flat,
          .gradients = {},
          .first_moment = optimizer_.first_moment(),
          .second_moment = optimizer_.second_moment(),
          .num_updates = optimizer_.num_updates()};
}

std::vector<plan::MemoryLine> ReplicatedStrategy::private_memory() const {
  const auto flat = static_cast<int64_t>(optimizer_.first_moment().nbytes());
  std::vector<plan::MemoryLine> lines = {{"optimizer", 2 * flat}};
  if (comm::device_of(group_).is_cpu()) return lines;
  lines.push_back({"parameters", flat});  // else they lie in the heap
  lines.push_back({"gradients", flat});
  return lines;
}

}  // namespace hanji::train
