#include "hanji/parallel/server/parameter_server.h"

#include <torch/nn/module.h>

#include <string>

#include "hanji/base/status.h"
#include "hanji/parallel/agreement.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/server/internal/server_state.h"

namespace hanji::parallel {
namespace {

void check_options(const ParameterServerOptions& options, const NamedParameter& parameter) {
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
  check_stable_sums("parameter_server", parameter.name, parameter.tensor.scalar_type(),
                    "keep parameters in float32");
}

}  // namespace

ParameterServer parameter_server(torch::nn::Module& module, const comm::Group& group,
                                 const ParameterServerOptions& asked) {
  ModuleTensors tensors = tensors_of(module);
  std::vector<NamedParameter>& parameters = tensors.learning;
  Mistakes mistakes = flat_mistakes(tensors, "parameter_server");
  if (!parameters.empty() && parameters[0].tensor.is_cuda()) {
    mistakes.add(
        "device", parameters[0].name,
        base::unsupported("parameter_server: " + parameters[0].name +
                          " is on a GPU; move the module to the CPU, where servers update"));
  }
  check_same_structure(tensors.in_order, group, mistakes);
  check_options(asked, parameters[0]);
  const layout::FlatLayout flat = flat_layout_of(parameters);
  const auto shares = layout::cut_at_blocks(
      layout::server_shares(flat.count, group.size(), asked.servers, asked.workers).or_throw(),
      flat);
  ParameterServerOptions options = asked;
  options.owners =
      stable_owners({"parameter_server", asked.average, asked.num_grains, asked.owners},
                    static_cast<int>(shares.workers.size()));
  broadcast_from_first(tensors.in_order, group);
  const auto make =
      options.timing == ServerTiming::kSynchronous ? synchronous_server : asynchronous_server;
  auto state = make(std::move(parameters), group, options, flat, shares);
  state->set_watch(
      std::make_unique<ParameterWatch>(module, "parameter_server", ParameterWatch::Types::kStay));
  return ParameterServer(std::move(state));
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
void ParameterServer::grain(int64_t index) { state_->gradients("grain()").begin_grain(index); }
layout::Range ParameterServer::grains() const {
  return is_worker() ? grains_of(state_->gradients("grains()").fold()) : layout::Range{};
}
ServerStep ParameterServer::step(double learning_rate) {
  state_->refuse_changes();
  return state_->step(learning_rate);
}
double ParameterServer::push() {
  state_->refuse_changes();
  return state_->push();
}
ServerStep ParameterServer::update(double learning_rate, double gradient_divisor) {
  return state_->update(learning_rate, gradient_divisor);
}
std::vector<at::Tensor> ParameterServer::gradient_slots() const {
  return state_->gradients("gradient_slots()").slots(0);
}
void ParameterServer::finish() { state_->finish(); }
void ParameterServer::synchronize() {
  state_->refuse_changes();
  state_->synchronize();
}
void ParameterServer::gather_state(torch::optim::Optimizer& whole) const {
  state_->gather_state(whole);
}
void ParameterServer::scatter_state(const torch::optim::Optimizer& whole) {
  state_->scatter_state(whole);
}
FlatOptimizer* ParameterServer::optimizer() const { return state_->optimizer(); }

}  // namespace hanji::parallel
