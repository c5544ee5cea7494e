#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/host_values.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/optimizer_kind.h"
#include "hanji/parallel/server/internal/server_state.h"

namespace hanji::parallel {
namespace {

using torch::optim::Optimizer;

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

/// Every rank refuses what does not fit on any.
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
  comm::all_reduce_on_host(all, group_,
                           {.op = schedule::ReduceOp::kMax, .label = "optimizer state"});
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
    comm::broadcast(part, server, group_, {.label = name}).wait();
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
