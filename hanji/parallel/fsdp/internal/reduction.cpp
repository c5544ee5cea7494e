// Gradients of units over the ranks, and each rank's share to its leaves.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/host_values.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/tree_reduce.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/internal/gradients.h"

namespace hanji::parallel {

bool Gradients::retire_oldest() {
  if (num_retired_ == num_launched_) return false;
  if (num_retired_ > 0) put_away(units_[units_.size() - num_retired_]);
  retire(units_[units_.size() - 1 - num_retired_]);
  ++num_retired_;
  return true;
}

void Gradients::launch_ready_units() {
  if (accumulating_ || !is_last_grain()) return;
  while (num_launched_ < units_.size()) {
    const size_t index = units_.size() - 1 - num_launched_;
    if (units_[index].num_ready < units_[index].ready.size()) return;
    launch(units_[index], index);
    ++num_launched_;
  }
}

void Gradients::launch(Unit& unit, size_t index) {
  const ShardingOptions& options = setup_.options;
  if (fold_) {
    at::Tensor whole = unit.rows[0];
    unit.work = comm::tree_all_reduce(unit.rows, whole, unit.steps, everyone(),
                                      {.tag = index, .label = "gradients"});
    return;
  }
  for (size_t i = 0; i < unit.filled.size(); ++i) {
    if (!unit.filled[i]) slot(unit, 0, i).zero_();
  }
  const at::Tensor whole = unit.rows[0];
  if (options.average == Average::kWeighted) whole.mul_(weight_);
  const bool adds = std::ranges::any_of(
      unit.flat->leaves(), [](const Leaf& leaf) { return leaf.tensor.grad().defined(); });
  const c10::ScalarType dtype = unit.flat->dtypes().reduce;
  unit.sum = unit.shard;
  if (unit.stored) {
    begin_stored(unit, index);
  } else if (adds || dtype != unit.flat->dtype()) {
    unit.sum = comm::zeros_on(unit.flat->device(), {unit.shard.numel()}, dtype, setup_.group,
                              "gradient shards");
  }
  unit.work =
      comm::reduce_scatter(unit.sum, whole, layout::shard_counts(unit.flat->plan()), setup_.group,
                           {.op = reduce_op(options.average), .tag = index, .label = "gradients"});
}

/// The unit's share is there: its buffer is free, and replicas add theirs.
void Gradients::retire(Unit& unit) {
  unit.work.wait();
  unit.work = {};
  if (fold_) {
    const layout::Range own = unit.flat->range();
    unit.sum = unit.shard.copy_(unit.rows[0].narrow(0, own.begin, own.size()));
    return;
  }
  std::ranges::fill(unit.filled, 0);
  if (!setup_.keeps_whole) {
    pool_.give(unit.rows);
    unit.rows.reset();
  }
  if (!setup_.replicas) return;
  unit.work =
      comm::all_reduce(unit.sum, *setup_.replicas,
                       {.op = reduce_op(setup_.options.average), .label = "gradient shards"});
}

void Gradients::reduce_all() {
  launch_ready_units();
  while (retire_oldest()) {
  }
  if (!units_.empty()) put_away(units_[0]);
  const at::Tensor used = used_anywhere();
  for (Unit& unit : units_) unit.work.wait();
  if (!setup_.store) scale();
  for (Unit& unit : units_) {
    if (unit.sum.defined()) hand_out(unit, used.const_data_ptr<uint8_t>() + unit.first_parameter);
  }
  holds_sums_ = true;
  total_weight_.reset();
}

/// What the sums over ranks have not divided by yet.
void Gradients::scale() {
  const double by = divisor();
  if (by == 1) return;
  for (Unit& unit : units_) unit.sum.div_(by);
}

double Gradients::divisor() {
  const ShardingOptions& options = setup_.options;
  if (fold_ && options.average == Average::kMean) return static_cast<double>(options.num_grains);
  if (options.average != Average::kWeighted) return 1;
  if (!total_weight_.defined()) {
    total_weight_ = at::full({1}, weight_, at::kDouble);
    comm::all_reduce_on_host(total_weight_, setup_.group, {.label = "weights"});
    if (setup_.replicas) {
      comm::all_reduce_on_host(total_weight_, *setup_.replicas, {.label = "weights"});
    }
  }
  return total_weight_.item<double>();
}

/// One byte per parameter: 1 where any rank has a gradient.
at::Tensor Gradients::used_anywhere() {
  at::Tensor used = at::zeros({static_cast<int64_t>(num_parameters_)}, at::kByte);
  auto* bytes = used.mutable_data_ptr<uint8_t>();
  for (const Unit& unit : units_) bytes = std::ranges::copy(unit.used, bytes).out;
  const comm::AllReduceOptions options{.op = schedule::ReduceOp::kMax, .label = "used parameters"};
  comm::all_reduce_on_host(used, setup_.group, options);
  if (setup_.replicas) comm::all_reduce_on_host(used, *setup_.replicas, options);
  return used;
}

void Gradients::hand_out(Unit& unit, const uint8_t* used) {
  const auto& leaves = unit.flat->leaves();
  const bool adds = !unit.sum.is_same(unit.shard);
  for (size_t i = 0; i < leaves.size(); ++i) {
    at::Tensor& gradient = leaves[i].tensor.mutable_grad();
    if (!used[leaves[i].position]) {
      if (fold_) gradient.reset();
      if (adds && !gradient.defined()) unit.slots[i].zero_();  // for whoever reads flat gradients
      continue;
    }
    if (!adds) {
      gradient = unit.slots[i];
      continue;
    }
    const at::Tensor more = alias(unit.sum, leaves[i].offset, leaves[i].tensor.sizes());
    if (gradient.defined()) {
      gradient.add_(more);
    } else {
      gradient = unit.slots[i].copy_(more);
    }
  }
  unit.sum.reset();
}

}  // namespace hanji::parallel
