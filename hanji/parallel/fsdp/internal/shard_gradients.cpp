#include "hanji/parallel/fsdp/internal/shard_gradients.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <utility>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/host_values.h"
#include "hanji/comm/new_tags.h"
#include "hanji/comm/tree_reduce.h"
#include "hanji/parallel/flat_parameters.h"

namespace hanji::parallel {
namespace {

at::Tensor zero_shares(const FlatUnit& flat, c10::ScalarType dtype, int64_t count,
                       const comm::Group& group) {
  return comm::zeros_on(flat.part().device, {count}, dtype, group, "gradient shards");
}

}  // namespace

ShardGradients::ShardGradients(const std::vector<FlatUnit*>& units, Setup setup,
                               Gradients::Events events)
    : setup_(std::move(setup)), tags_(comm::new_tags(setup_.everyone.value_or(setup_.group))) {
  for (FlatUnit* flat : units) units_.emplace_back().flat = flat;
  make_engine(std::move(events));
  place_shards();
  place_rows();
}

void ShardGradients::make_engine(Gradients::Events events) {
  const ShardingOptions& options = setup_.options;
  std::vector<GradientUnit> units;
  for (size_t order = 0; order < units_.size(); ++order) {
    const FlatUnit& flat = *units_[reversed(order)].flat;
    units.push_back({flat.part().parameters, flat.part().plan.flat.offsets});
  }
  GradientOptions of{setup_.caller, {setup_.group}, setup_.secondary};
  if (setup_.replicas) of.groups.push_back(*setup_.replicas);
  of.average = options.average;
  of.num_grains = options.num_grains;
  of.owners = options.owners;
  of.owner = (setup_.everyone ? *setup_.everyone : setup_.group).rank();
  of.parts = options.parts;
  of.remainder = Remainder::kTrap;
  of.handle = setup_.handle;
  of.watch = setup_.watch;
  of.rule = setup_.rule;
  events.on_unit = [this, told = std::move(events.on_unit)](size_t order) {
    told(reversed(order));
  };
  engine_ = std::make_unique<Gradients>(std::move(units), *this, std::move(of), std::move(events));
}

void ShardGradients::place_rows() {
  for (Unit& unit : units_) {
    const int64_t count = unit.flat->part().plan.flat.count;
    const auto element_bytes =
        static_cast<int64_t>(c10::elementSize(unit.flat->part().dtypes.reduce));
    row_bytes_ = std::max(row_bytes_, count * element_bytes);
    if (const GrainFold* fold = engine_->fold()) {
      unit.steps = std::make_shared<const schedule::StepList>(
          schedule::tree_all_reduce(fold->tree(), count));
    } else {
      prepare_calls(unit, &unit - units_.data());
    }
  }
  for (size_t order = units_.size(); setup_.keeps_whole && order-- > 0;) rows(order);
}

void ShardGradients::prepare_calls(Unit& unit, uint64_t tag) const {
  const UnitPart& part = unit.flat->part();
  const std::string_view name = part.label();
  const std::string label =
      std::string("gradients ") + (name.starts_with("of ") ? "" : "of ") + std::string(name);
  comm::PrepareOptions call{.op = reduce_op(setup_.options.average), .tag = tag, .label = label};
  unit.reduce_scatter = comm::prepare(schedule::Routine::kReduceScatter, part.dtypes.reduce,
                                      layout::shard_counts(part.plan), setup_.group, call);
  if (!setup_.replicas) return;
  call.tag = 0;
  call.label = "gradient shards";
  unit.all_reduce = comm::prepare(schedule::Routine::kAllReduce, part.dtypes.reduce,
                                  {part.range().size()}, *setup_.replicas, call);
}

void ShardGradients::place_shards() {
  std::map<c10::ScalarType, int64_t> counts;
  for (Unit& unit : units_) {
    counts[unit.flat->part().dtypes.shard] += unit.flat->part().range().size();
    if (setup_.store) place_in_file(unit);
  }
  if (setup_.store) return;
  for (const auto& [dtype, count] : counts) {
    flat_.push_back(zero_shares(*units_[0].flat, dtype, count, setup_.group));
    int64_t begin = 0;
    for (Unit& unit : units_) {
      if (unit.flat->part().dtypes.shard != dtype) continue;
      unit.shard = flat_.back().narrow(0, begin, unit.flat->part().range().size());
      begin += unit.flat->part().range().size();
      unit.slots = unit.flat->by_leaf(unit.shard);
    }
  }
}

void ShardGradients::place_in_file(Unit& unit) {
  const FlatUnit& flat = *unit.flat;
  unit.stored.emplace(setup_.store, flat.part().range().size(), flat.part().dtypes.shard,
                      "the gradients of the shard of " + flat.part().parameters[0].name +
                          " and others lie in a file; look at them by for_each_gradient()");
  unit.shard = unit.stored->tensor();
  unit.stored->make();  // for alias(), which looks
  unit.slots = flat.by_leaf(unit.shard);
  unit.stored->drop();
}

const at::Tensor& ShardGradients::rows(size_t order) {
  Unit& unit = units_[reversed(order)];
  if (unit.rows.defined()) return unit.rows;
  const int64_t count = unit.flat->part().plan.flat.count;
  const c10::ScalarType dtype = unit.flat->part().dtypes.reduce;
  if (keeps_rows()) {
    unit.rows = comm::zeros_on(unit.flat->part().device, {engine_->num_rows(), count}, dtype,
                               setup_.group, "gradients");
  } else {
    unit.rows = take_row(count, dtype);
  }
  return unit.rows;
}

/// At most max_units_in_flight are there at a time, if a unit that has begun can end.
at::Tensor ShardGradients::take_row(int64_t count, c10::ScalarType dtype) {
  while (free_.empty() && num_made_ >= setup_.options.max_units_in_flight && retire_oldest()) {
  }
  if (free_.empty()) {
    free_.push_back(comm::zeros_on(units_[0].flat->part().device, {row_bytes_}, at::kByte,
                                   setup_.group, "gradients"));
    ++num_made_;
  }
  const at::Tensor bytes = std::exchange(free_.back(), {});
  free_.pop_back();
  return at::empty({0}, bytes.options().dtype(dtype)).set_(bytes.storage(), 0, {1, count}, {});
}

void ShardGradients::begin(size_t order, Gradients& /*gradients*/) {
  const size_t index = reversed(order);
  Unit& unit = units_[index];
  const at::Tensor whole = unit.rows[0];
  if (unit.steps) {
    at::Tensor sum = whole;
    unit.work = comm::tree_all_reduce(unit.rows, sum, unit.steps,
                                      setup_.everyone ? *setup_.everyone : setup_.group,
                                      {.tag = tags_ + index, .label = "gradients"});
    ++num_begun_;
    return;
  }
  const bool adds = std::ranges::any_of(
      unit.flat->leaves(), [](const Leaf& leaf) { return leaf.tensor.grad().defined(); });
  const c10::ScalarType dtype = unit.flat->part().dtypes.reduce;
  const bool converts = dtype != unit.flat->part().dtypes.shard;
  unit.sum = unit.shard;
  if (converts || (unit.stored ? holds_sums_ : adds)) {
    unit.sum = zero_shares(*unit.flat, dtype, unit.shard.numel(), setup_.group);
  }
  if (unit.stored) begin_stored(unit, order);
  unit.work = unit.reduce_scatter.start(unit.sum, whole);
  ++num_begun_;
}

/// To be added to what is there, a sum must know which parameters any rank has used. All ranks ask
/// here, in the order of the units, and not when they write, each in its own time.
void ShardGradients::begin_stored(Unit& unit, size_t order) {
  if (order == 0) engine_->divisor();
  if (unit.sum.is_same(unit.shard)) return unit.stored->make();
  if (!holds_sums_) return;
  const auto used = engine_->used_here(order);
  unit.used_anywhere = at::zeros({std::ssize(used)}, at::kByte);
  std::ranges::copy(used, unit.used_anywhere.mutable_data_ptr<uint8_t>());
  unit.used_work = comm::all_reduce(
      unit.used_anywhere, setup_.group,
      {.op = schedule::ReduceOp::kMax, .tag = tags_ + reversed(order), .label = "used parameters"});
}

bool ShardGradients::retire_oldest() {
  if (num_retired_ == num_begun_) return false;
  if (num_retired_ > 0) put_away(units_[reversed(num_retired_ - 1)]);
  retire(units_[reversed(num_retired_)]);
  ++num_retired_;
  return true;
}

/// The unit's share is there: its rows are free, and replicas add theirs.
void ShardGradients::retire(Unit& unit) {
  unit.work.wait();
  unit.work = {};
  if (unit.steps) {
    const layout::Range own = unit.flat->part().range();
    unit.sum = unit.shard.copy_(unit.rows[0].narrow(0, own.begin, own.size()));
    return;
  }
  if (!keeps_rows()) {
    free_.push_back(at::empty({0}, unit.rows.options().dtype(at::kByte))
                        .set_(unit.rows.storage(), 0, {row_bytes_}, {}));
    unit.rows.reset();
  }
  if (setup_.replicas) unit.work = unit.all_reduce.start(unit.sum);
}

/// In a file at once, so that no sum stays in memory until the others are there.
void ShardGradients::put_away(Unit& unit) {
  if (!unit.stored) return;
  unit.work.wait();
  unit.work = {};
  if (const double by = engine_->divisor(); by != 1) unit.sum.div_(by);
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

/// All are retired before the first ends: what replicas are asked comes in the same order everywhere.
void ShardGradients::end(size_t order, Gradients& gradients) {
  while (retire_oldest()) {
  }
  if (order == 0) put_away(units_[0]);
  Unit& unit = units_[reversed(order)];
  const auto used = gradients.used(order);
  unit.work.wait();
  unit.work = {};
  if (unit.sum.defined()) {
    const double by = setup_.store ? 1 : gradients.divisor();
    if (by != 1) unit.sum.div_(by);
    hand_out(unit, used.data());
  }
  if (order + 1 < units_.size()) return;
  holds_sums_ = true;
  num_begun_ = num_retired_ = 0;
}

void ShardGradients::hand_out(Unit& unit, const uint8_t* used) {
  const auto& leaves = unit.flat->leaves();
  const bool adds = !unit.sum.is_same(unit.shard);
  const auto more = adds ? unit.flat->by_leaf(unit.sum) : std::vector<at::Tensor>();
  for (size_t i = 0; i < leaves.size(); ++i) {
    at::Tensor& gradient = leaves[i].tensor.mutable_grad();
    if (used[leaves[i].position] == 0) {
      if (unit.steps) gradient.reset();
      if (adds && !gradient.defined()) unit.slots[i].zero_();  // for readers of flat gradients
    } else if (adds && gradient.defined()) {
      gradient.add_(more[i]);
    } else {
      gradient = adds ? unit.slots[i].copy_(more[i]) : unit.slots[i];
    }
  }
  unit.sum.reset();
}

FilePlace ShardGradients::shard_in_file(size_t unit) const {
  return units_[unit].stored ? units_[unit].stored->in_file() : FilePlace{};
}

void ShardGradients::forget() {
  holds_sums_ = false;
  for (Unit& unit : units_) {
    for (const Leaf& leaf : unit.flat->leaves()) leaf.tensor.mutable_grad().reset();
  }
}

void ShardGradients::for_each_unit(bool changes,
                                   const std::function<void(const FlatUnit&)>& visit) {
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
