#include "hanji/parallel/fsdp/whole_values.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <iterator>

#include "hanji/base/status.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/host_values.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"
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
                           {.op = schedule::ReduceOp::kMax,
                            .tag = model.learning()[0]->part().tag,
                            .label = "optimizer state"});
  kept.assign(all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + kept.size());
  return kept;
}

/// Of all units that learn, one value for each leaf of `unit`, from `next` on.
std::vector<at::Tensor> take_leaves(const FlatUnit& unit, const std::vector<at::Tensor>& values,
                                    size_t& next) {
  std::vector<at::Tensor> own;
  for (const Leaf& leaf : unit.leaves()) {
    if (next >= values.size() || values[next].numel() != leaf.elements.size()) {
      throw Error(base::invalid_argument("gather_values: value " + std::to_string(next) +
                                         " must have the " + std::to_string(leaf.elements.size()) +
                                         " elements of this rank's shard of " +
                                         unit.part().parameters[leaf.position].name +
                                         "; give one value per tensor of parameters()"));
    }
    own.push_back(values[next++]);
  }
  return own;
}

/// One value per leaf, shaped like it, of all ranks together: by position, shaped like the parameters.
std::vector<at::Tensor> gather_unit(const FlatUnit& unit, const std::vector<at::Tensor>& by_leaf) {
  const at::NoGradGuard no_grad;
  const UnitPart& part = unit.part();
  const at::Tensor mine =
      at::zeros({part.range().size()}, at::TensorOptions(part.dtypes.shard).device(part.device));
  for (size_t i = 0; i < by_leaf.size(); ++i) {
    const Leaf& leaf = unit.leaves()[i];
    mine.narrow(0, leaf.offset, leaf.elements.size()).copy_(by_leaf[i].reshape({-1}));
  }
  at::Tensor all = at::empty({part.plan.flat.count}, mine.options());
  comm::all_gather(all, mine, layout::shard_counts(part.plan), part.group,
                   {.tag = part.tag, .label = part.label()})
      .wait();
  std::vector<at::Tensor> whole;
  for (size_t i = 0; i < part.parameters.size(); ++i) {
    whole.push_back(
        alias(all, part.plan.flat.offsets[i], part.parameters[i].tensor.sizes()).clone());
  }
  return whole;
}

}  // namespace

std::vector<NamedParameter> gather_values(const Sharded& sharded,
                                          const std::vector<at::Tensor>& of_shards) {
  std::vector<NamedParameter> whole;
  size_t next = 0;
  for (const FlatUnit* unit : model_of(sharded).learning()) {
    const auto tensors = gather_unit(*unit, take_leaves(*unit, of_shards, next));
    for (size_t i = 0; i < tensors.size(); ++i) {
      whole.push_back({unit->part().parameters[i].name, tensors[i]});
    }
  }
  return whole;
}

std::vector<at::Tensor> scatter_values(const Sharded& sharded,
                                       const std::vector<NamedParameter>& whole) {
  std::vector<at::Tensor> pieces;
  for (const FlatUnit* unit : model_of(sharded).learning()) {
    for (const Leaf& leaf : unit->leaves()) {
      const NamedParameter& parameter = unit->part().parameters[leaf.position];
      const auto found = std::ranges::find(whole, parameter.name, &NamedParameter::name);
      if (found == whole.end() || found->tensor.sizes() != parameter.tensor.sizes()) {
        throw Error(base::mismatch(fmt::format(
            "scatter_values: parameter {} is [{}]; the whole tensors have {}", parameter.name,
            fmt::join(parameter.tensor.sizes(), ", "),
            found == whole.end() ? "none of that name"
                                 : fmt::format("[{}]", fmt::join(found->tensor.sizes(), ", ")))));
      }
      pieces.push_back(piece_of(found->tensor, leaf));
    }
  }
  return pieces;
}

std::vector<NamedParameter> parameters_by_unit(const Sharded& sharded) {
  std::vector<NamedParameter> found;
  for (const FlatUnit* unit : model_of(sharded).learning()) {
    std::ranges::copy(unit->part().parameters, std::back_inserter(found));
  }
  return found;
}

std::vector<NamedParameter> whole_parameters(const Sharded& sharded) {
  std::vector<NamedParameter> found;
  for (const FlatUnit* unit : model_of(sharded).learning()) {
    const UnitPart& part = unit->part();
    const at::Tensor whole = unit->memory().all_shards();
    if (!whole.defined()) {
      throw Error(base::unsupported("whole_parameters: no rank has unit " + part.name +
                                    " whole between steps; take full_parameters()"));
    }
    for (size_t i = 0; i < part.parameters.size(); ++i) {
      const auto& [name, parameter] = part.parameters[i];
      found.push_back({name, alias(whole, part.plan.flat.offsets[i], parameter.sizes())});
    }
  }
  return found;
}

void gather_state(const Sharded& sharded, const Optimizer& of_shards, Optimizer& whole) {
  const at::NoGradGuard no_grad;
  const OptimizerKind kind = common_kind(of_shards, whole);
  const std::vector<int64_t> kept = kept_anywhere(model_of(sharded), of_shards, kind);
  std::vector<ParameterState> states(kept.size());
  for (size_t i = 0; i < kMaxStateTensors; ++i) {
    if (std::ranges::none_of(kept, [&](int64_t code) { return code >> i & 1; })) continue;
    std::vector<at::Tensor> values;
    for (const at::Tensor& leaf : sharded.parameters()) {
      const OptimizerParamState* of = find_state(of_shards, leaf);
      const at::Tensor own = of == nullptr ? at::Tensor() : kind.read(*of).tensors[i];
      values.push_back(own.defined() ? own : at::zeros_like(leaf));
    }
    const auto all = gather_values(sharded, values);
    for (size_t p = 0; p < kept.size(); ++p) {
      if (kept[p] >> i & 1) states[p].tensors[i] = all[p].tensor;
    }
  }
  size_t next = 0;
  for (const FlatUnit* unit : model_of(sharded).learning()) {
    for (const auto& entry : unit->part().parameters) {
      const size_t p = next++;
      states[p].step = (kept[p] >> kMaxStateTensors) - 1;
      if (kept[p] == 0) continue;
      whole.state()[entry.tensor.unsafeGetTensorImpl()] = kind.make(states[p]);
    }
  }
}

void scatter_state(const Sharded& sharded, const Optimizer& whole, Optimizer& of_shards) {
  const at::NoGradGuard no_grad;
  const OptimizerKind kind = common_kind(whole, of_shards);
  for (const FlatUnit* unit : model_of(sharded).learning()) {
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
