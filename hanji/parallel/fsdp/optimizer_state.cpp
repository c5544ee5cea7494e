#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/comm/host_values.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"
#include "hanji/parallel/fsdp/sharded.h"
#include "hanji/parallel/optimizer_kind.h"

namespace hanji::parallel {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

OptimizerKind common_kind(const Optimizer& a, const Optimizer& b) {
  const OptimizerKind kind = kind_of(a), other = kind_of(b);
  if (kind.read == other.read) return kind;
  throw Error(base::invalid_argument(std::string("the state of ") + kind.name +
                                     " cannot become that of " + other.name));
}

/// By parameter, of what any rank keeps: (step + 1) * 8 + a bit for each tensor; 0: nothing.
std::vector<int64_t> kept_anywhere(const ShardedModel& model, const Optimizer& optimizer,
                                   const OptimizerKind& kind) {
  std::vector<int64_t> kept;
  for (const FlatUnit* unit : model.learning()) {
    const size_t first = kept.size();
    kept.resize(first + unit->part().parameters.size());
    for (const Leaf& leaf : unit->leaves()) {
      const OptimizerParamState* of = find_state(optimizer, leaf.tensor);
      if (of == nullptr) continue;
      const ParameterState state = kind.read(*of);
      int64_t code = (state.step + 1) << kMaxStateTensors;
      for (size_t i = 0; i < kMaxStateTensors; ++i)
        code |= int64_t{state.tensors[i].defined()} << i;
      kept[first + leaf.position] = code;
    }
  }
  at::Tensor all = at::zeros({static_cast<int64_t>(kept.size())}, at::kLong);
  std::ranges::copy(kept, all.mutable_data_ptr<int64_t>());
  comm::all_reduce_on_host(all, model.group(),
                           {.op = schedule::ReduceOp::kMax, .label = "optimizer state"});
  kept.assign(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + kept.size());
  return kept;
}

}  // namespace

void Sharded::gather_state(const Optimizer& of_shards, Optimizer& whole) const {
  const at::NoGradGuard no_grad;
  const OptimizerKind kind = common_kind(of_shards, whole);
  const std::vector<int64_t> kept = kept_anywhere(*model_, of_shards, kind);
  std::vector<ParameterState> states(kept.size());
  for (size_t i = 0; i < kMaxStateTensors; ++i) {
    if (std::ranges::none_of(kept, [&](int64_t code) { return code >> i & 1; })) continue;
    std::vector<at::Tensor> values;
    for (const at::Tensor& leaf : parameters()) {
      const OptimizerParamState* of = find_state(of_shards, leaf);
      const at::Tensor own = of == nullptr ? at::Tensor() : kind.read(*of).tensors[i];
      values.push_back(own.defined() ? own : at::zeros_like(leaf));
    }
    const auto all = gather(values);
    for (size_t p = 0; p < kept.size(); ++p) {
      if (kept[p] >> i & 1) states[p].tensors[i] = all[p].tensor;
    }
  }
  size_t next = 0;
  for (const FlatUnit* unit : model_->learning()) {
    for (const auto& entry : unit->part().parameters) {
      const size_t p = next++;
      states[p].step = (kept[p] >> kMaxStateTensors) - 1;
      if (kept[p] == 0) continue;
      whole.state()[entry.tensor.unsafeGetTensorImpl()] = kind.make(states[p]);
    }
  }
}

void Sharded::scatter_state(const Optimizer& whole, Optimizer& of_shards) const {
  const at::NoGradGuard no_grad;
  const OptimizerKind kind = common_kind(whole, of_shards);
  for (const FlatUnit* unit : model_->learning()) {
    for (const Leaf& leaf : unit->leaves()) {
      const at::Tensor& parameter = unit->part().parameters[leaf.position].tensor;
      const OptimizerParamState* of = find_state(whole, parameter);
      if (of == nullptr) continue;
      ParameterState state = kind.read(*of);
      for (at::Tensor& tensor : state.tensors) {
        if (tensor.defined()) tensor = piece_of(tensor, leaf);
      }
      of_shards.state()[leaf.tensor.unsafeGetTensorImpl()] = kind.make(state);
    }
  }
}

}  // namespace hanji::parallel
