// What Gradients do where the shares lie in a file: a share has memory from the begin of its
// reduction until it has been written behind it, while the units after it are still computed.
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/host_values.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/internal/gradients.h"

namespace hanji::parallel {

void Gradients::place_in_file() {
  for (Unit& unit : units_) {
    const FlatUnit& flat = *unit.flat;
    unit.stored.emplace(setup_.store, flat.range().size(), flat.dtype(),
                        "the gradients of the shard of " + flat.parameters()[0].name +
                            " and others lie in a file; look at them by for_each_gradient()");
    unit.shard = unit.stored->tensor();
    unit.stored->make();  // for alias(), which looks
    for (const Leaf& leaf : flat.leaves()) {
      unit.slots.push_back(alias(unit.shard, leaf.offset, leaf.tensor.sizes()));
    }
    unit.stored->drop();
  }
}

/// To be added to what is there, a sum must know which parameters any rank has used. All ranks ask
/// here, in the order of the units, and not when they write, each in its own time.
void Gradients::begin_stored(Unit& unit, size_t index) {
  if (setup_.options.average == Average::kWeighted && num_launched_ == 0) divisor();
  const c10::ScalarType dtype = unit.flat->dtypes().reduce;
  if (!holds_sums_ && dtype == unit.flat->dtype()) return unit.stored->make();
  unit.sum = comm::zeros_on(unit.flat->device(), {unit.shard.numel()}, dtype, setup_.group,
                            "gradient shards");
  if (!holds_sums_) return;
  unit.used_anywhere = at::zeros({static_cast<int64_t>(unit.used.size())}, at::kByte);
  std::ranges::copy(unit.used, unit.used_anywhere.mutable_data_ptr<uint8_t>());
  unit.used_work =
      comm::all_reduce(unit.used_anywhere, setup_.group,
                       {.op = schedule::ReduceOp::kMax, .tag = index, .label = "used parameters"});
}

/// At once, so that no sum stays in memory until the others are there.
void Gradients::put_away(Unit& unit) {
  if (!unit.stored) return;
  unit.work.wait();
  unit.work = {};
  if (const double by = divisor(); by != 1) unit.sum.div_(by);
  if (unit.used_work.begun()) {
    unit.used_work.wait();
    unit.used_work = {};
    if (setup_.replicas) {
      comm::all_reduce_on_host(unit.used_anywhere, *setup_.replicas,
                               {.op = schedule::ReduceOp::kMax, .label = "used parameters"});
    }
    unit.stored->bring();
    hand_out(unit, unit.used_anywhere.const_data_ptr<uint8_t>());
  } else if (!unit.sum.is_same(unit.shard)) {
    unit.stored->make();
    unit.sum = unit.shard.copy_(unit.sum);
  }
  unit.stored->keep();
}

FilePlace Gradients::shard_in_file(size_t unit) const {
  return units_[unit].stored ? units_[unit].stored->in_file() : FilePlace{};
}

void Gradients::forget() {
  holds_sums_ = false;
  for (Unit& unit : units_) {
    for (const Leaf& leaf : unit.flat->leaves()) leaf.tensor.mutable_grad().reset();
  }
}

void Gradients::for_each_unit(bool changes, const std::function<void(const FlatUnit&)>& visit) {
  for (size_t u = 0; u < units_.size(); ++u) {
    const bool stored = units_[u].stored && holds_sums_;
    if (stored && u + 1 < units_.size()) units_[u + 1].stored->read_ahead();
    if (stored) units_[u].stored->bring();
    visit(*units_[u].flat);
    if (!stored) continue;
    changes ? units_[u].stored->keep() : units_[u].stored->drop();
  }
}

}  // namespace hanji::parallel
