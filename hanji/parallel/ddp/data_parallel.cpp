#include "hanji/parallel/ddp/data_parallel.h"

#include <torch/nn/module.h>

#include "hanji/base/status.h"
#include "hanji/layout/split.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/ddp/internal/reducer.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::parallel {
namespace {

Mistakes mistakes_of(const std::vector<NamedParameter>& parameters,
                     const std::vector<NamedParameter>& buffers) {
  Mistakes mistakes;
  for (const auto& entry : with_buffers(parameters, buffers)) {
    mistakes.add_if_without_memory(entry, "data_parallel");
  }
  if (parameters.empty()) {
    mistakes.add("none", "",
                 base::invalid_argument("data_parallel: no parameter of the module requires a "
                                        "gradient; nothing to reduce"));
    return mistakes;
  }
  const at::Tensor& first = parameters[0].tensor;
  for (const NamedParameter& entry : parameters) {
    const auto& [name, tensor] = entry;
    mistakes.add_if_taken(entry, "data_parallel");
    if (tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device()) continue;
    mistakes.add("kind", name,
                 base::unsupported(
                     "data_parallel: " + name + " is " + c10::toString(tensor.scalar_type()) +
                     " on " + tensor.device().str() + " but " + parameters[0].name + " is " +
                     c10::toString(first.scalar_type()) + " on " + first.device().str() +
                     "; convert the module to one dtype and device, or wrap its parts one by one"));
  }
  return mistakes;
}

void refuse_hook(const DataParallelOptions& options, at::ScalarType gradients) {
  if (!options.hook) return;
  if (options.num_grains > 0) {
    throw Error(base::unsupported("data_parallel: with the hook " + options.hook.name + " " +
                                  options.hook.cost_in_bits +
                                  ", which depends on the ranks; stable bits do not. Drop one"));
  }
  if (c10::elementSize(gradients) < 4) {
    throw Error(base::unsupported("data_parallel: the hook " + options.hook.name +
                                  " takes gradients of float32 or float64, not " +
                                  c10::toString(gradients)));
  }
}

/// The options with the owners filled in; refuses what stable bits cannot hold for.
DataParallelOptions resolve(DataParallelOptions options, const comm::Group& group,
                            const at::Tensor& parameter) {
  const at::ScalarType gradients = options.gradient_dtype.value_or(parameter.scalar_type());
  if (!c10::isFloatingType(gradients)) {
    throw Error(base::invalid_argument(std::string("data_parallel: gradient_dtype ") +
                                       c10::toString(gradients) + " is no floating type"));
  }
  refuse_hook(options, gradients);
  if (options.num_grains == 0 && options.owners.empty()) return options;
  if (options.owners.empty()) {
    options.owners = layout::split_grains(options.num_grains, group.size()).or_throw();
  }
  base::throw_if_error(schedule::check_owners(options.num_grains, options.owners));
  if (static_cast<int>(options.owners.size()) != group.size()) {
    throw Error(base::invalid_argument("data_parallel: owners names " +
                                       std::to_string(options.owners.size()) + " ranks, group " +
                                       group.name() + " has " + std::to_string(group.size())));
  }
  if (options.average == Average::kWeighted) {
    throw Error(base::unsupported(
        "data_parallel: Average::kWeighted scales before the sum, which stable bits forbid; weigh "
        "the loss of each grain and use Average::kSum"));
  }
  if (c10::elementSize(gradients) < 4) {
    throw Error(base::unsupported(
        std::string("data_parallel: gradients of ") + c10::toString(gradients) +
        " round differently within a rank and between ranks; keep gradients in float32"));
  }
  return options;
}

}  // namespace

Replicas data_parallel(torch::nn::Module& module, const comm::Group& group,
                       const DataParallelOptions& asked) {
  auto parameters = learning_parameters(module);
  auto buffers = buffers_of(module);
  check_same_structure(with_buffers(parameters, buffers), group, mistakes_of(parameters, buffers));
  const DataParallelOptions options = resolve(asked, group, parameters[0].tensor);
  broadcast_from_first(parameters, group);
  broadcast_from_first(buffers, group);
  check_same_values(parameters, group);
  return Replicas(
      std::make_unique<Reducer>(std::move(parameters), std::move(buffers), group, options));
}

Replicas::Replicas(std::unique_ptr<Reducer> reducer) : reducer_(std::move(reducer)) {}
Replicas::Replicas(Replicas&&) noexcept = default;
Replicas& Replicas::operator=(Replicas&&) noexcept = default;
Replicas::~Replicas() = default;

Replicas::Accumulation::Accumulation(Reducer& reducer) : reducer_(reducer) {
  reducer_.set_accumulating(true);
}
Replicas::Accumulation::~Accumulation() { reducer_.set_accumulating(false); }

Replicas::Accumulation Replicas::accumulate() { return Accumulation(*reducer_); }
void Replicas::grain(int64_t index) { reducer_->begin_grain(index); }
layout::Range Replicas::grains() const { return reducer_->grains(); }
const schedule::GrainTree& Replicas::grain_tree() const { return reducer_->fold().tree(); }
void Replicas::finish() { reducer_->finish(); }
void Replicas::set_weight(double weight) { reducer_->set_weight(weight); }
bool Replicas::join(double weight) { return reducer_->join(weight); }
void Replicas::broadcast_buffers() { reducer_->broadcast_buffers(); }
void Replicas::check_parameters() { reducer_->check_parameters(); }
const std::vector<NamedParameter>& Replicas::parameters() const { return reducer_->parameters(); }
at::Tensor Replicas::flat_gradients() const { return reducer_->flat_gradients(); }
std::vector<at::Tensor> Replicas::gradient_slots() const { return reducer_->gradient_slots(); }
const layout::BucketPlan& Replicas::buckets() const { return reducer_->buckets(); }

}  // namespace hanji::parallel
