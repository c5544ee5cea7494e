// Where whole gradients lie while backward runs, and each rank's share of them after it.
#include <algorithm>
#include <map>

#include "hanji/comm/host_values.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/fsdp/internal/gradients.h"

namespace hanji::parallel {

void Gradients::place_buffers() {
  int64_t largest = 0;
  for (const Unit& unit : units_) {
    const auto element_bytes = static_cast<int64_t>(c10::elementSize(unit.flat->dtypes().reduce));
    largest = std::max(largest, unit.flat->plan().flat.count * element_bytes);
  }
  if (!units_.empty()) {
    pool_ = BufferPool(largest, setup_.options.max_units_in_flight, units_[0].flat->device(),
                       setup_.group);
  }
  place_shards();
  if (!setup_.keeps_whole) return;
  for (Unit& unit : units_) need_rows(unit);
}

void Gradients::place_shards() {
  if (setup_.store) return place_in_file();
  std::map<c10::ScalarType, int64_t> counts;
  for (const Unit& unit : units_) counts[unit.flat->dtype()] += unit.flat->range().size();
  for (const auto& [dtype, count] : counts) {
    flat_.push_back(
        comm::zeros_on(units_[0].flat->device(), {count}, dtype, setup_.group, "gradient shards"));
    int64_t begin = 0;
    for (Unit& unit : units_) {
      if (unit.flat->dtype() != dtype) continue;
      unit.shard = flat_.back().narrow(0, begin, unit.flat->range().size());
      begin += unit.flat->range().size();
      for (const Leaf& leaf : unit.flat->leaves()) {
        unit.slots.push_back(alias(unit.shard, leaf.offset, leaf.tensor.sizes()));
      }
    }
  }
}

at::Tensor Gradients::slot(const Unit& unit, size_t row, size_t position) const {
  const layout::Unit& plan = unit.flat->plan();
  return alias(unit.rows, static_cast<int64_t>(row) * plan.flat.count + plan.flat.offsets[position],
               unit.flat->parameters()[position].tensor.sizes());
}

std::vector<at::Tensor> Gradients::slots(const FlatUnit& flat) const {
  std::vector<at::Tensor> slots(flat.parameters().size());
  for (const Unit& unit : units_) {
    const bool known = unit.rows.defined() && (fold_ || setup_.keeps_whole);
    if (unit.flat != &flat || !known) continue;
    for (size_t i = 0; i < slots.size(); ++i) {
      unit.traps[i]->clear();
      if (fold_ || !unit.filled[i]) slots[i] = slot(unit, row_, i);
    }
  }
  return slots;
}

void Gradients::need_rows(Unit& unit) {
  if (unit.rows.defined()) return;
  const int64_t count = unit.flat->plan().flat.count;
  if (fold_ || setup_.keeps_whole) {
    const int64_t num_rows = fold_ ? fold_->num_buffers() : 1;
    unit.rows = comm::zeros_on(unit.flat->device(), {num_rows, count}, unit.flat->dtypes().reduce,
                               setup_.group, "gradients");
    return;
  }
  while (!pool_.has_room() && retire_oldest()) {
  }
  unit.rows = pool_.take(count, unit.flat->dtypes().reduce).view({1, count});
  std::ranges::fill(unit.filled, 0);
}

}  // namespace hanji::parallel
