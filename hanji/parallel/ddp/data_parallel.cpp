#include "hanji/parallel/ddp/data_parallel.h"

#include <torch/nn/module.h>

#include "hanji/base/status.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/ddp/internal/reducer.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::parallel {
namespace {

const char* const kReplicas = "data_parallel";

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
                            const NamedParameter& parameter) {
  const at::ScalarType gradients = options.gradient_dtype.value_or(parameter.tensor.scalar_type());
  if (!c10::isFloatingType(gradients)) {
    throw Error(base::invalid_argument(std::string("data_parallel: gradient_dtype ") +
                                       c10::toString(gradients) + " is no floating type"));
  }
  refuse_hook(options, gradients);
  if (options.hook.fresh) options.hook = options.hook.fresh();
  options.owners =
      stable_owners({kReplicas, options.average, options.num_grains, options.owners}, group.size());
  if (options.owners.empty()) return options;
  check_stable_sums(kReplicas, parameter.name, gradients, "keep gradients in float32");
  return options;
}

}  // namespace

Replicas data_parallel(torch::nn::Module& module, const comm::Group& group,
                       const DataParallelOptions& asked) {
  ModuleTensors tensors = tensors_of(module);
  check_same_structure(tensors.in_order, group, flat_mistakes(tensors, kReplicas));
  const DataParallelOptions options = resolve(asked, group, tensors.learning[0]);
  broadcast_from_first(tensors.in_order, group);
  check_same_values(tensors.in_order, group);
  auto watch = std::make_shared<ParameterWatch>(module, kReplicas, ParameterWatch::Types::kStay);
  return Replicas(std::make_unique<Reducer>(std::move(tensors), group, options, std::move(watch)));
}

Replicas data_parallel(std::vector<NamedParameter> leaves, const comm::Group& group,
                       const DataParallelOptions& asked) {
  const DataParallelOptions options = resolve(asked, group, leaves.at(0));
  ModuleTensors tensors;
  tensors.learning = std::move(leaves);
  return Replicas(std::make_unique<Reducer>(std::move(tensors), group, options, nullptr));
}

Replicas::Replicas(std::unique_ptr<Reducer> reducer) : reducer_(std::move(reducer)) {}
Replicas::Replicas(Replicas&&) noexcept = default;
Replicas& Replicas::operator=(Replicas&&) noexcept = default;
Replicas::~Replicas() = default;

Replicas::Accumulation::Accumulation(Reducer& reducer) : reducer_(reducer) {
  reducer_.gradients().set_accumulating(true);
}
Replicas::Accumulation::~Accumulation() { reducer_.gradients().set_accumulating(false); }

Replicas::Accumulation Replicas::accumulate() { return Accumulation(*reducer_); }
void Replicas::grain(int64_t index, size_t part) { reducer_->gradients().begin_grain(index, part); }
layout::Range Replicas::grains() const { return grains_of(reducer_->gradients().fold()); }
const schedule::GrainTree& Replicas::grain_tree() const {
  if (const GrainFold* fold = reducer_->gradients().fold()) return fold->tree();
  throw Error(base::invalid_argument(
      "there are no grains here: num_grains is 0 in the options of data_parallel()"));
}
void Replicas::finish() { reducer_->gradients().finish(); }
void Replicas::set_weight(double weight) { reducer_->gradients().set_weight(weight); }
bool Replicas::join(double weight) { return reducer_->join(weight); }
void Replicas::broadcast_buffers() { reducer_->broadcast_buffers(); }
void Replicas::check_parameters() { reducer_->check_parameters(); }
const std::vector<NamedParameter>& Replicas::parameters() const { return reducer_->parameters(); }
at::Tensor Replicas::flat_gradients() const { return reducer_->flat_gradients(); }
std::vector<at::Tensor> Replicas::gradient_slots() const { return reducer_->gradient_slots(); }
const layout::BucketPlan& Replicas::buckets() const { return reducer_->plan(); }

}  // namespace hanji::parallel
