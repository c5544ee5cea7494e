#include "hanji/parallel/server/parameter_server.h"

#include <torch/nn/module.h>

#include <string>

#include "hanji/base/status.h"
#include "hanji/layout/split.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/server/internal/server_state.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::parallel {
namespace {

Mistakes server_mistakes(const std::vector<NamedParameter>& parameters,
                         const std::vector<NamedParameter>& buffers) {
  Mistakes mistakes;
  for (const auto& entry : with_buffers(parameters, buffers)) {
    mistakes.add_if_without_memory(entry, "parameter_server");
  }
  if (parameters.empty()) {
    mistakes.add("none", "",
                 base::invalid_argument("parameter_server: no parameter of the module requires a "
                                        "gradient; nothing to serve"));
    return mistakes;
  }
  const auto& [first_name, first] = parameters[0];
  for (const NamedParameter& entry : parameters) {
    const auto& [name, tensor] = entry;
    mistakes.add_if_taken(entry, "parameter_server");
    if (tensor.is_meta()) continue;  // told above
    if (tensor.scalar_type() == first.scalar_type() && tensor.is_cpu()) continue;
    mistakes.add(
        "kind", name,
        base::unsupported("parameter_server: " + name + " is " +
                          c10::toString(tensor.scalar_type()) + " on " + tensor.device().str() +
                          ", " + first_name + " is " + c10::toString(first.scalar_type()) + " on " +
                          first.device().str() + "; convert the module to one dtype on the CPU"));
  }
  return mistakes;
}

void check_timing(const ParameterServerOptions& options, const at::Tensor& parameter) {
  if (options.average == Average::kWeighted) {
    throw Error(base::unsupported(
        "parameter_server: Average::kWeighted; weigh the losses and use Average::kSum"));
  }
  if (options.max_staleness < 0 || options.message_bytes < 1) {
    throw Error(base::invalid_argument(
        "parameter_server: max_staleness " + std::to_string(options.max_staleness) +
        " and message_bytes " + std::to_string(options.message_bytes) +
        " must be at least 0 and 1"));
  }
  if (options.num_grains == 0 && options.owners.empty()) return;
  if (options.timing == ServerTiming::kAsynchronous) {
    throw Error(base::unsupported(
        "parameter_server: asynchronous updates come in the order in which workers happen to push, "
        "so no bits of theirs are stable; drop num_grains or use kSynchronous"));
  }
  if (parameter.element_size() < 4) {
    throw Error(base::unsupported(std::string("parameter_server: gradients of ") +
                                  c10::toString(parameter.scalar_type()) +
                                  " round differently within a rank and between ranks; keep "
                                  "parameters in float32"));
  }
}

ParameterServerOptions with_owners(ParameterServerOptions options, size_t num_workers) {
  if (options.num_grains == 0 && options.owners.empty()) return options;
  if (options.owners.empty()) {
    options.owners =
        layout::split_grains(options.num_grains, static_cast<int>(num_workers)).or_throw();
  }
  base::throw_if_error(schedule::check_owners(options.num_grains, options.owners));
  if (options.owners.size() != num_workers) {
    throw Error(base::invalid_argument("parameter_server: owners names " +
                                       std::to_string(options.owners.size()) +
                                       " workers, there are " + std::to_string(num_workers)));
  }
  return options;
}

}  // namespace

ParameterServer parameter_server(torch::nn::Module& module, const comm::Group& group,
                                 const ParameterServerOptions& asked) {
  auto parameters = learning_parameters(module);
  const auto buffers = buffers_of(module);
  check_same_structure(with_buffers(parameters, buffers), group,
                       server_mistakes(parameters, buffers));
  check_timing(asked, parameters[0].tensor);
  const layout::FlatLayout flat = flat_layout_of(parameters);
  const auto shares = layout::cut_at_blocks(
      layout::server_shares(flat.count, group.size(), asked.servers, asked.workers).or_throw(),
      flat);
  const ParameterServerOptions options = with_owners(asked, shares.workers.size());
  broadcast_from_first(parameters, group);
  broadcast_from_first(buffers, group);
  const auto make =
      options.timing == ServerTiming::kSynchronous ? synchronous_server : asynchronous_server;
  return ParameterServer(make(std::move(parameters), group, options, flat, shares));
}

ParameterServer::ParameterServer(std::unique_ptr<ServerState> state) : state_(std::move(state)) {}
ParameterServer::ParameterServer(ParameterServer&&) noexcept = default;
ParameterServer& ParameterServer::operator=(ParameterServer&&) noexcept = default;
ParameterServer::~ParameterServer() = default;

bool ParameterServer::is_worker() const { return state_->is_worker(); }
bool ParameterServer::is_server() const { return state_->is_server(); }
const layout::ServerShares& ParameterServer::shares() const { return state_->shares(); }
const layout::FlatLayout& ParameterServer::flat_layout() const { return state_->flat_layout(); }
layout::ServerTraffic::Link ParameterServer::moved() const { return state_->moved(); }
void ParameterServer::grain(int64_t index) { state_->begin_grain(index); }
layout::Range ParameterServer::grains() const { return state_->grains(); }
ServerStep ParameterServer::step(double learning_rate) { return state_->step(learning_rate); }
double ParameterServer::push() { return state_->push(); }
ServerStep ParameterServer::update(double learning_rate, double gradient_divisor) {
  return state_->update(learning_rate, gradient_divisor);
}
std::vector<at::Tensor> ParameterServer::gradient_slots() const { return state_->gradient_slots(); }
void ParameterServer::finish() { state_->finish(); }
void ParameterServer::synchronize() { state_->synchronize(); }
void ParameterServer::gather_state(torch::optim::Optimizer& whole) const {
  state_->gather_state(whole);
}
void ParameterServer::scatter_state(const torch::optim::Optimizer& whole) {
  state_->scatter_state(whole);
}
FlatOptimizer* ParameterServer::optimizer() const { return state_->optimizer(); }

}  // namespace hanji::parallel
