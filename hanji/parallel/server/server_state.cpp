#include "hanji/parallel/server/internal/server_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/host_values.h"
#include "hanji/comm/message.h"
#include "hanji/comm/new_tags.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/gradients/gradient_hook.h"
#include "hanji/parallel/optimizer_kind.h"

namespace hanji::parallel {
namespace {

using torch::optim::Optimizer;

const char* const kServer = "parameter_server";

/// Each worker one grain, unless grains are told.
schedule::GrainTree tree_over(const ParameterServerOptions& options, size_t num_workers) {
  if (options.num_grains > 0) return schedule::grain_tree(options.num_grains, options.owners);
  std::vector<layout::Range> owners;
  const auto count = static_cast<int64_t>(num_workers);
  for (int64_t worker = 0; worker < count; ++worker) owners.push_back({worker, worker + 1});
  return schedule::grain_tree(count, owners);
}

/// Undefined: not kept.
at::Tensor find_flat(const FlatOptimizer& optimizer, const char* name) {
  if (name == nullptr) return {};
  const auto state = optimizer.state();
  const auto found = std::ranges::find(state, name, &NamedParameter::name);
  return found == state.end() ? at::Tensor() : found->tensor;
}

std::string list_of(const FlatOptimizer& optimizer) {
  std::string names;
  for (const NamedParameter& entry : optimizer.state()) {
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  return names.empty() ? "nothing" : names;
}

bool fits(const FlatOptimizer& of_range, const OptimizerKind& kind) {
  const auto known = std::ranges::count_if(
      kind.flat_names, [&](const char* name) { return find_flat(of_range, name).defined(); });
  return static_cast<size_t>(known) == of_range.state().size();
}

void refuse(const FlatOptimizer* of_range, const OptimizerKind& kind) {
  throw Error(base::unsupported("parameter_server: the optimizer of a range keeps " +
                                (of_range == nullptr ? "a state" : list_of(*of_range)) +
                                ", for which torch's " + kind.name +
                                " has no place; save optimizer()->state() of each server instead"));
}

}  // namespace

ServerState::ServerState(std::vector<NamedParameter> parameters, const comm::Group& group,
                         const ParameterServerOptions& options, layout::FlatLayout flat,
                         layout::ServerShares shares)
    : parameters_(std::move(parameters)),
      group_(group),
      options_(options),
      layout_(std::move(flat)),
      shares_(std::move(shares)),
      tree_(tree_over(options_, shares_.workers.size())),
      tags_(comm::new_tags(group)) {
  const auto found = std::ranges::find(shares_.workers, group_.rank());
  if (found != shares_.workers.end()) {
    worker_ = static_cast<int>(found - shares_.workers.begin());
    place_worker();
  }
  if (is_server()) place_server();
  for (const NamedParameter& entry : parameters_) placed_.add(entry);
  note_versions();
  if (is_worker()) return;
  for (const NamedParameter& entry : parameters_) {
    add_gradient_hook(entry.tensor, {.strategy = kServer, .owner = this}, [] {});  // others see it
  }
}

ServerState::~ServerState() {
  if (is_worker()) return;
  for (const NamedParameter& entry : parameters_) remove_gradient_hook(entry.tensor, this);
}

void ServerState::note_versions() {
  versions_.clear();
  for (const NamedParameter& entry : parameters_) versions_.push_back(entry.tensor._version());
}

void ServerState::take_writes() {
  if (const std::string misfits = placed_.misfits(); !misfits.empty()) {
    throw Error(base::invalid_argument(
        "parameter_server: " + misfits +
        ": Module::to(), set_data() or torch::load() has replaced its memory by some whose values "
        "the servers cannot take; convert or load the module before parameter_server()"));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const NamedParameter& entry = parameters_[i];
    const bool is_written = splits_roles() && entry.tensor._version() != versions_[i];
    if (!is_written && !placed_.is_replaced(i)) continue;
    if (splits_roles()) {
      throw Error(base::invalid_argument(
          "parameter_server: parameter " + entry.name +
          " was written or replaced after the start, but its values are those of ranks that only "
          "serve; write it before parameter_server()"));
    }
    flat_.narrow(0, layout_.offsets[i], layout_.sizes[i])
        .copy_(entry.tensor.detach().reshape({-1}).clone());
    placed_.put_back(i);
  }
}

void ServerState::place_worker() {
  const auto dtype = parameters_[0].tensor.scalar_type();
  flat_ = group_.heap().zeros({layout_.count}, dtype, "parameters");
  std::vector<at::Tensor> tensors;
  for (const NamedParameter& entry : parameters_) tensors.push_back(entry.tensor);
  move_into_flat(tensors, layout_, flat_);
  make_engine();
  gradients_ = group_.heap().zeros({engine_->num_rows(), layout_.count}, dtype, "gradients");
}

/// Gradients stay with the parameters until they are pushed: a rank that serves too writes over rows.
void ServerState::make_engine() {
  GradientOptions of{kServer, {group_}};
  of.average = Average::kSum;
  of.num_grains = options_.num_grains;
  of.owners = options_.owners;
  of.owner = worker_;
  of.remainder = Remainder::kGradient;
  of.ends_by_call = true;
  engine_ = std::make_unique<Gradients>(std::vector<GradientUnit>{{parameters_, layout_.offsets}},
                                        *this, std::move(of));
}

void ServerState::place_server() {
  const layout::Range range = own_range();
  const auto dtype = parameters_[0].tensor.scalar_type();
  weights_ = is_worker() ? flat_.slice(0, range.begin, range.end) : held_weights();
  sum_ = group_.heap().zeros({range.size()}, dtype, "gradients");
  FlatPart part{weights_, sum_, flat_pieces(parameters_, layout_, range, options_.rule)};
  const SumOverParts sum = [this](at::Tensor& values) { sum_over_servers(values); };
  optimizer_ = options_.make_optimizer ? options_.make_optimizer(std::move(part), sum)
                                       : flat_adamw(std::move(part));
}

/// By the first server, in their order, by messages: the other ranks take no part.
void ServerState::sum_over_servers(at::Tensor& values) {
  if (shares_.servers.size() == 1) return;
  if (options_.timing == ServerTiming::kAsynchronous) {
    throw Error(base::unsupported(
        "parameter server: this optimizer sums over a whole parameter, but asynchronous servers "
        "update their ranges at different times; use one server, or another optimizer"));
  }
  const int first = shares_.servers[0];
  Works works;
  if (group_.rank() == first) {
    for (size_t i = 1; i < shares_.servers.size(); ++i) {
      at::Tensor other = at::zeros_like(values);
      Works arrival;
      receive_from(other, shares_.servers[i], "statistics", arrival);
      arrival[0].wait();
      values.add_(other);
    }
    for (size_t i = 1; i < shares_.servers.size(); ++i) {
      send_to(values, shares_.servers[i], "statistics", works);
    }
  } else {
    send_to(values, first, "statistics", works);
    receive_from(values, first, "statistics", works);
  }
  for (comm::Work& work : works) work.wait();
}

/// The own range of the module's parameters, which stay where they are.
at::Tensor ServerState::held_weights() const {
  const at::NoGradGuard no_grad;
  const layout::Range range = own_range();
  at::Tensor held =
      group_.heap().zeros({range.size()}, parameters_[0].tensor.scalar_type(), "parameters");
  const auto pieces = flat_pieces(parameters_, layout_, range, options_.rule);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const FlatPiece& piece = pieces[i];
    if (piece.range.empty()) continue;
    held.slice(0, piece.range.begin, piece.range.end)
        .copy_(parameters_[i].tensor.reshape({-1}).slice(0, piece.first,
                                                         piece.first + piece.range.size()));
  }
  return held;
}

void ServerState::refuse_changes() const { watch_->refuse_mistakes(); }

Gradients& ServerState::gradients(const char* call) const {
  if (is_worker()) return *engine_;
  throw Error(base::invalid_argument(
      std::string(call) + ": this rank only serves and computes no gradient; ask is_worker()"));
}

std::vector<layout::Range> ServerState::pieces_of(layout::Range range) const {
  const auto element_bytes = static_cast<int64_t>(parameters_[0].tensor.element_size());
  const int64_t size = std::max<int64_t>(1, options_.message_bytes / element_bytes);
  std::vector<layout::Range> pieces;
  for (int64_t begin = range.begin; begin < range.end; begin += size) {
    pieces.push_back({begin, std::min(begin + size, range.end)});
  }
  return pieces;
}

void ServerState::send_to(const at::Tensor& tensor, int rank, const char* label, Works& works) {
  works.push_back(comm::send(tensor, rank, group_, {.tag = tags_, .label = label}));
  moved_.sent += static_cast<int64_t>(tensor.nbytes());
}

void ServerState::receive_from(at::Tensor tensor, int rank, const char* label, Works& works) {
  works.push_back(comm::recv(tensor, rank, group_, {.tag = tags_, .label = label}));
  moved_.received += static_cast<int64_t>(tensor.nbytes());
}

void ServerState::send_weights(int rank, Works& works) {
  for (const layout::Range piece : pieces_of({0, weights_.numel()})) {
    send_to(weights_.slice(0, piece.begin, piece.end), rank, "weights", works);
  }
}

void ServerState::receive_weights(int server, Works& works) {
  for (const layout::Range piece : pieces_of(shares_.range_of(server))) {
    receive_from(flat_.slice(0, piece.begin, piece.end), server, "weights", works);
  }
}

void ServerState::synchronize() {
  const at::NoGradGuard no_grad;
  take_writes();
  at::Tensor all = is_worker() ? flat_ : at::zeros({layout_.count}, weights_.options());
  if (!is_worker()) all.slice(0, own_range().begin, own_range().end).copy_(weights_);
  for (const int server : shares_.servers) {
    const layout::Range range = shares_.range_of(server);
    if (range.empty()) continue;
    at::Tensor part = all.slice(0, range.begin, range.end);
    comm::broadcast(part, server, group_, {.tag = tags_, .label = "weights"}).wait();
  }
  if (is_worker()) return;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    at::Tensor(parameter.detach())
        .copy_(all.slice(0, layout_.offsets[i], layout_.offsets[i] + layout_.sizes[i])
                   .view(parameter.sizes()));
  }
  note_versions();
}

/// Throws on every rank what does not fit on any.
ServerState::Kept ServerState::kept_anywhere(const OptimizerKind& kind) const {
  constexpr int64_t kMisfit = 0, kUpdates = 1, kTensors = 2;
  at::Tensor all = at::zeros({kTensors + int64_t{kMaxStateTensors}}, at::kLong);
  auto* mine = all.mutable_data_ptr<int64_t>();
  if (optimizer_) {
    mine[kMisfit] = fits(*optimizer_, kind) ? 0 : 1;
    mine[kUpdates] = optimizer_->num_updates();
    for (size_t i = 0; i < kMaxStateTensors; ++i) {
      mine[kTensors + i] = find_flat(*optimizer_, kind.flat_names[i]).defined() ? 1 : 0;
    }
  }
  comm::all_reduce_on_host(
      all, group_, {.op = schedule::ReduceOp::kMax, .tag = tags_, .label = "optimizer state"});
  const auto* of_all = all.const_data_ptr<int64_t>();
  if (of_all[kMisfit] != 0) refuse(optimizer_.get(), kind);
  Kept kept{.updates = of_all[kUpdates]};
  for (size_t i = 0; i < kMaxStateTensors; ++i) kept.tensors[i] = of_all[kTensors + i] != 0;
  return kept;
}

at::Tensor ServerState::whole_of(const char* name) const {
  at::Tensor all = at::zeros({layout_.count}, parameters_[0].tensor.options().requires_grad(false));
  for (const int server : shares_.servers) {
    const layout::Range range = shares_.range_of(server);
    if (range.empty()) continue;
    at::Tensor part = all.slice(0, range.begin, range.end);
    if (server == group_.rank()) part.copy_(find_flat(*optimizer_, name));
    comm::broadcast(part, server, group_, {.tag = tags_, .label = name}).wait();
  }
  return all;
}

void ServerState::gather_state(Optimizer& whole) const {
  const at::NoGradGuard no_grad;
  const OptimizerKind kind = kind_of(whole);
  const Kept kept = kept_anywhere(kind);
  if (kept.updates == 0) return;  // as an optimizer that has made no step
  std::vector<ParameterState> states(parameters_.size(), ParameterState{kept.updates, {}});
  for (size_t i = 0; i < kMaxStateTensors; ++i) {
    if (!kept.tensors[i]) continue;
    const at::Tensor flat = whole_of(kind.flat_names[i]);
    for (size_t p = 0; p < states.size(); ++p) {
      states[p].tensors[i] = alias(flat, layout_.offsets[p], parameters_[p].tensor.sizes()).clone();
    }
  }
  for (size_t p = 0; p < states.size(); ++p) {
    whole.state()[parameters_[p].tensor.unsafeGetTensorImpl()] = kind.make(states[p]);
  }
}

int64_t ServerState::updates_of(const Optimizer& whole, const OptimizerKind& kind) const {
  int64_t updates = 0;
  const NamedParameter* counted = nullptr;
  for (const NamedParameter& entry : parameters_) {
    const auto* of = find_state(whole, entry.tensor);
    if (of == nullptr) continue;
    const int64_t step = kind.read(*of).step;
    if (counted != nullptr && step != updates) {
      throw Error(
          base::invalid_argument("parameter_server: the state of " + counted->name + " has seen " +
                                 std::to_string(updates) + " updates and that of " + entry.name +
                                 " " + std::to_string(step) +
                                 ", but a server counts those of its range together; load a state "
                                 "whose parameters have learned together"));
    }
    updates = step;
    counted = &entry;
  }
  return updates;
}

void ServerState::scatter_state(const Optimizer& whole) {
  const at::NoGradGuard no_grad;
  const OptimizerKind kind = kind_of(whole);
  const int64_t updates = updates_of(whole, kind);
  if (!optimizer_) return;
  if (!fits(*optimizer_, kind)) refuse(optimizer_.get(), kind);
  optimizer_->set_num_updates(updates);
  const auto pieces = flat_pieces(parameters_, layout_, own_range(), options_.rule);
  for (size_t i = 0; i < kMaxStateTensors; ++i) {
    const at::Tensor own = find_flat(*optimizer_, kind.flat_names[i]);
    if (!own.defined()) continue;
    own.zero_();
    for (size_t p = 0; p < pieces.size(); ++p) {
      const auto* of = find_state(whole, parameters_[p].tensor);
      const at::Tensor from = of == nullptr ? at::Tensor() : kind.read(*of).tensors[i];
      const layout::Range range = pieces[p].range;
      if (!from.defined() || range.empty()) continue;
      own.slice(0, range.begin, range.end)
          .copy_(from.reshape({-1}).narrow(0, pieces[p].first, range.size()));
    }
  }
}

}  // namespace hanji::parallel
