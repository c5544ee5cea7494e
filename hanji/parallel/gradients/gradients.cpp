#include "hanji/parallel/gradients/gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/comm/host_values.h"
#include "hanji/comm/new_tags.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/parallel/gradients/gradient_hook.h"

namespace hanji::parallel {
namespace {

[[noreturn]] void refuse_use(const std::string& why) { throw Error(base::invalid_argument(why)); }

}  // namespace

Gradients::Gradients(std::vector<GradientUnit> units, GradientSink& sink, GradientOptions options,
                     Events events)
    : sink_(sink),
      options_(std::move(options)),
      events_(std::move(events)),
      accumulating_(options_.ends_by_call) {
  size_t num_parameters = 0;
  for (GradientUnit& of : units) {
    const size_t size = of.parameters.size();
    Unit& unit = units_.emplace_back();
    unit.of = std::move(of);
    for (const auto& entry : unit.of.parameters) unit.sizes.push_back(entry.tensor.sizes().vec());
    for (auto* flags : {&unit.ready, &unit.reached, &unit.held}) flags->resize(size);
    unit.first = num_parameters;
    num_parameters += size;
  }
  if (options_.rule.broken.empty()) options_.rule = rule_of_handle(options_.caller);
  for (const comm::Group& group : options_.groups) {
    tags_.push_back(options_.ends_by_call ? 0 : comm::new_tags(group));  // servers make no engine
  }
  make_folds();
  if (folds_.empty()) expect_parts();
  install_hooks();
  watch_frozen();
}

void Gradients::make_folds() {
  if (options_.parts.empty()) options_.parts.emplace_back();
  const auto part_of = [&](const at::Tensor& parameter) {
    auto found = std::ranges::find_if(options_.parts, [&](const GrainPart& part) {
      return std::ranges::any_of(part.parameters,
                                 [&](const at::Tensor& one) { return one.is_same(parameter); });
    });
    if (found == options_.parts.end()) {  // which nothing reads
      found = std::ranges::find_if_not(options_.parts, &std::vector<at::Tensor>::empty,
                                       &GrainPart::parameters);
    }
    return found == options_.parts.end() ? 0 : static_cast<size_t>(found - options_.parts.begin());
  };
  for (Unit& unit : units_) {
    for (const auto& entry : unit.of.parameters) unit.parts.push_back(part_of(entry.tensor));
  }
  if (options_.num_grains == 0) return;
  for (const GrainPart& part : options_.parts) {
    folds_.emplace_back(options_.num_grains, options_.owners, options_.owner, part.grains);
  }
}

/// A unit begins in the last of the backwards that reach it.
void Gradients::expect_parts() {
  std::vector<int64_t> backwards(units_.size());
  int64_t all = 0;
  for (const GrainPart& part : options_.parts) {
    const auto is_reached = [&](const NamedParameter& entry) {
      return std::ranges::any_of(part.parameters,
                                 [&](const at::Tensor& one) { return one.is_same(entry.tensor); });
    };
    bool reaches = false;
    for (size_t u = 0; u < units_.size(); ++u) {
      if (std::ranges::none_of(units_[u].of.parameters, is_reached)) continue;
      ++backwards[u];
      reaches = true;
    }
    all += reaches ? 1 : 0;
  }
  if (all > 1) expect(std::move(backwards), all);
}

int64_t Gradients::num_rows() const {
  int rows = 1;
  for (const GrainFold& fold : folds_) rows = std::max(rows, fold.num_buffers());
  return rows;
}

Gradients::~Gradients() {
  for (const Unit& unit : units_) {
    for (const auto& entry : unit.of.parameters) remove_gradient_hook(entry.tensor, this);
  }
  if (!options_.watch) return;
  for (const auto& entry : options_.watch->frozen()) remove_gradient_hook(entry.tensor, this);
}

void Gradients::install_hooks() {
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    for (size_t i = 0; i < unit.of.parameters.size(); ++i) {
      const NamedParameter& parameter = unit.of.parameters[i];
      if (options_.remainder == Remainder::kTrap) {
        unit.traps.push_back(std::make_unique<GradientTrap>(parameter, options_.caller));
      }
      add_gradient_hook(parameter.tensor, {options_.caller, !folds_.empty(), options_.handle, this},
                        [this, u, i] { on_gradient(u, i); });
    }
  }
}

/// A backward may reach nothing else than what was frozen, so nothing else would tell of it.
void Gradients::watch_frozen() {
  if (!options_.watch) return;
  for (const auto& entry : options_.watch->frozen()) {
    add_gradient_hook(entry.tensor,
                      {.strategy = options_.caller, .owner = this, .only_watches = true},
                      [this] { on_frozen_gradient(); });
  }
}

void Gradients::on_frozen_gradient() {
  const bool only_adds = accumulating_ && !fold() && !events_.on_end;
  if (only_adds || !has_changed()) return;
  if (fold() && !fold()->is_open()) refuse_changes();
  arm();
}

void Gradients::refuse_changes() const {
  if (options_.watch) options_.watch->refuse_mistakes();
}

void Gradients::refuse_changes_together() const {
  refuse_together(options_.watch ? options_.watch->mistakes() : Mistakes(), options_.groups);
}

void Gradients::on_gradient(size_t index, size_t position) {
  under_rule(options_.rule, [&] { receive(index, position); });
}

void Gradients::refuse_graph() const {
  if (!at::GradMode::is_enabled()) return;
  throw Error(base::unsupported(
      options_.caller +
      ": backward() with create_graph, but sums over ranks are no part of a graph, so nothing goes "
      "through `.grad` to a second backward(); take the inner gradient by "
      "torch::autograd::grad(..., create_graph), of data_parallel() or shard_optimizer(), and put "
      "it into the loss"));
}

void Gradients::receive(size_t index, size_t position) {
  Unit& unit = units_[index];
  const std::string& name = unit.of.parameters[position].name;
  if (fold() && (!fold()->is_open() || unit.parts[position] != part_)) {
    refuse_use("a backward() outside any grain reached parameter " + name +
               "; call grain(index) before each backward(), or take num_grains out of "
               "the options of " +
               options_.caller + "()");
  }
  if (!fold() && options_.remainder == Remainder::kGradient) return;
  refuse_graph();
  const bool only_adds = accumulating_ && !fold() && !events_.on_end;
  if (!only_adds) arm();
  if (unit.ready[position]) {
    refuse_use("parameter " + name +
               " got its gradient twice in one backward(); wrap all but the "
               "last use in accumulate()");
  }
  if (unit.complete) {
    refuse_use("parameter " + name + " got a gradient in backward() " +
               std::to_string(unit.num_backwards + 1) + " of a step; its unit was told to expect " +
               std::to_string(expected_[index]));
  }
  const at::NoGradGuard no_grad;
  if (refuses_) {
    sink_.rows(index);  // begin in the order of the other ranks, whatever they hold
  } else {
    take(index, position);
  }
  unit.reached[position] = 1;
  if (only_adds) return;
  mark_ready(index, position);
  if (unit.num_ready == unit.ready.size() && events_.on_unit) events_.on_unit(index);
  begin_complete_units();
  for (const comm::Group& group : options_.groups) group.advance();
  if (options_.secondary) options_.secondary->advance();
}

/// A slot shares the row's memory without being a view to autograd: torch's optimizers detach
/// gradients in place, which views forbid.
const at::Tensor& Gradients::slot(size_t index, size_t row, size_t position) {
  Unit& unit = units_[index];
  const size_t size = unit.of.parameters.size();
  if (const at::Tensor& rows = sink_.rows(index); !unit.rows.is_same(rows)) {
    unit.rows = rows;
    unit.slots.clear();
    for (int64_t r = 0; r < rows.size(0); ++r) {
      for (size_t i = 0; i < size; ++i) {
        unit.slots.push_back(alias(rows, r * rows.stride(0) + unit.of.offsets[i], unit.sizes[i]));
      }
    }
  }
  return unit.slots[row * size + position];
}

/// Into the slot, whatever backward left in `.grad`: sparse, elsewhere, or of another dtype.
void Gradients::take(size_t index, size_t position) {
  Unit& unit = units_[index];
  at::Tensor& gradient = unit.of.parameters[position].tensor.mutable_grad();
  const at::Tensor dense = gradient.layout() == c10::kStrided ? gradient : gradient.to_dense();
  const at::Tensor& target = slot(index, row_, position);
  if (dense.sizes() != target.sizes()) {
    refuse_use(fmt::format(
        "{}: the gradient of parameter {} is [{}] and its place [{}]: set_data() or torch::load() "
        "has "
        "given the parameter another size; change the module before {}()",
        options_.caller, unit.of.parameters[position].name, fmt::join(dense.sizes(), ", "),
        fmt::join(target.sizes(), ", "), options_.caller));
  }
  const bool in_place =
      dense.data_ptr() == target.data_ptr() && dense.strides() == target.strides();
  if (unit.held[position] && !fold() && !grad_holds_all()) {
    target.add_(dense);
  } else if (!in_place) {
    target.copy_(dense);
  }
  unit.held[position] = 1;
  switch (options_.remainder) {
    case Remainder::kTrap: unit.traps[position]->set(); break;
    case Remainder::kGradient: break;
    case Remainder::kNothing: gradient.reset(); break;
    case Remainder::kSlot:
      if (fold()) {
        gradient.reset();
      } else if (!in_place) {
        gradient = target;
      }
  }
}

/// Rows are folded one parameter at a time: element-wise sums do not care which comes first.
void Gradients::mark_ready(size_t index, size_t position) {
  Unit& unit = units_[index];
  unit.ready[position] = 1;
  ++unit.num_ready;
  if (!refuses_ && fold() && fold()->is_open()) {
    for (const auto& [into, from] : fold()->step().combines) {
      slot(index, into, position).add_(slot(index, from, position));
    }
  }
  if (fold() && fold()->is_last()) ++unit.num_summed;
  const size_t num_complete = fold() ? unit.num_summed : unit.num_ready;
  if (num_complete == unit.ready.size()) unit.complete = is_last_backward(index);
}

bool Gradients::is_last_backward(size_t index) const {
  if (accumulating_) return false;
  if (!expected_.empty()) return units_[index].num_backwards + 1 >= expected_[index];
  return true;
}

void Gradients::begin_complete_units() {
  for (; num_begun_ < units_.size() && units_[num_begun_].complete; ++num_begun_) {
    if (options_.average == Average::kWeighted) sink_.rows(num_begun_)[0].mul_(weight_);
    sink_.begin(num_begun_, *this);
  }
}

void Gradients::arm() {
  if (in_checkpointed_backward()) return;  // its parameters get their gradients after it
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == armed_graph_task_) return;
  if (armed_graph_task_ != -1) {
    refuse_use(
        "an earlier backward() of this module ended by an exception, so its gradients were sent "
        "only in part; call " +
        options_.caller + "() anew on every rank");
  }
  armed_graph_task_ = task;
  refuses_ = has_changed();
  keeps_graph_ = torch::autograd::get_current_graph_task_keep_graph();
  torch::autograd::Engine::get_default_engine().queue_callback([this] { end_of_backward(); });
  if (events_.on_first) events_.on_first();
}

void Gradients::finish() {
  if (fold() && !fold()->is_open() && fold()->grains().size() > 0) {
    refuse_use("finish() outside any grain; call grain(index)");
  }
  refuses_ = refuses_ || has_changed();
  end_of_backward();
}

void Gradients::end_of_backward() {
  under_rule(options_.rule, [&] { finish_backward(); });
}

/// Of all gradients, or in stable of those of one grain.
void Gradients::finish_backward() {
  const at::NoGradGuard no_grad;
  if (!accumulating_) ++num_backwards_;
  const bool is_last = !accumulating_ && num_backwards_ == expected_in_all_;
  for (size_t u = 0; u < units_.size(); ++u) {
    const bool counts = expected_.empty() || units_[u].num_ready > 0;
    if (fold() || (counts && is_last_backward(u))) fill(u);
    if (is_last && !units_[u].complete) {
      fill(u);
      units_[u].complete = true;
    }
    if (units_[u].num_ready > 0 && !accumulating_) ++units_[u].num_backwards;
    begin_complete_units();
  }
  if (events_.on_end) events_.on_end();
  const bool ends = num_begun_ == units_.size();
  if (ends) end_units();
  end_backward();
  if (fold()) {
    folds_[part_].end();
    ++num_folded_;
  }
  if (ends && events_.on_sums) events_.on_sums();
}

void Gradients::end_backward() {
  for (Unit& unit : units_) {
    std::ranges::fill(unit.ready, 0);
    unit.num_ready = 0;
  }
  armed_graph_task_ = -1;
  refuses_ = false;
}

/// What backward has not given.
void Gradients::fill(size_t index) {
  Unit& unit = units_[index];
  for (size_t i = 0; i < unit.ready.size(); ++i) {
    if (unit.ready[i] || (fold() && unit.parts[i] != part_)) continue;
    if (refuses_) {
      sink_.rows(index);
      mark_ready(index, i);
      continue;
    }
    if (!fold() && grad_holds_all()) {
      unit.held[i] = unit.of.parameters[i].tensor.grad().defined();
      if (unit.held[i]) take(index, i);
    }
    if (fold() || !unit.held[i]) slot(index, row_, i).zero_();
    mark_ready(index, i);
  }
}

void Gradients::end_step() {
  under_rule(options_.rule, [&] { finish_step(); });
}

void Gradients::finish_step() {
  const at::NoGradGuard no_grad;
  if (fold()) {
    if (fold()->is_open()) end_of_backward();
    const layout::Range own = fold()->grains();
    if (num_folded_ != own.size()) {
      refuse_use(options_.caller + ": this rank computed " + std::to_string(num_folded_) +
                 " of its grains [" + std::to_string(own.begin) + ", " + std::to_string(own.end) +
                 "); call grain(index) and backward() for each");
    }
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!fold() && !units_[u].complete) fill(u);
    units_[u].complete = true;
    begin_complete_units();
  }
  end_units();
  end_backward();
  if (events_.on_sums) events_.on_sums();
}

void Gradients::end_units() {
  if (options_.static_order && used_.defined()) {
    refuse_changes();
    check_static_order();
  }
  for (size_t u = 0; u < units_.size(); ++u) sink_.end(u, *this);
  for (Unit& unit : units_) {
    std::ranges::fill(unit.reached, 0);
    std::ranges::fill(unit.held, 0);
    unit.num_backwards = 0;
    unit.num_summed = 0;
    unit.complete = false;
  }
  num_begun_ = row_ = 0;
  num_backwards_ = 0;
  num_folded_ = 0;
  total_weight_.reset();
  if (!options_.static_order) used_.reset();
}

/// The first byte also tells whether the module of any rank has changed.
void Gradients::exchange_used() {
  constexpr uint8_t kChanged = 2;
  const size_t count = units_.back().first + units_.back().held.size();
  used_ = at::zeros({static_cast<int64_t>(count)}, at::kByte);
  auto* bytes = used_.mutable_data_ptr<uint8_t>();
  for (Unit& unit : units_) {
    bytes = std::ranges::copy(unit.held, bytes).out;
    unit.reached_first = unit.reached;
  }
  auto& first = *used_.mutable_data_ptr<uint8_t>();
  if (has_changed()) first |= kChanged;
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    comm::all_reduce_on_host(
        used_, options_.groups[g],
        {.op = schedule::ReduceOp::kMax, .tag = tags_[g], .label = "used parameters"});
  }
  if (first >= kChanged) refuse_changes_together();
}

std::span<const uint8_t> Gradients::used(size_t index) {
  if (!used_.defined()) exchange_used();
  const Unit& unit = units_[index];
  return {used_.const_data_ptr<uint8_t>() + unit.first, unit.held.size()};
}

double Gradients::divisor() {
  if (fold() && options_.average == Average::kMean) return static_cast<double>(options_.num_grains);
  if (options_.average == Average::kWeighted && !total_weight_) {
    at::Tensor total = at::full({1}, weight_, at::kDouble);
    for (size_t g = 0; g < options_.groups.size(); ++g) {
      comm::all_reduce_on_host(total, options_.groups[g], {.tag = tags_[g], .label = "weights"});
    }
    total_weight_ = total.item<double>();
  }
  if (total_weight_ == 0.0) {
    refuse_use(
        "the weights of all ranks are 0 in this step, as where no target of any rank is valid, and "
        "there is no average; leave out backward() and the update on all ranks");
  }
  return total_weight_.value_or(1);
}

void Gradients::check_static_order() const {
  for (const Unit& unit : units_) {
    for (size_t i = 0; i < unit.reached.size(); ++i) {
      if (unit.reached[i] == unit.reached_first[i] || weight_ == 0) continue;
      refuse_use("static_order: parameter " + unit.of.parameters[i].name +
                 (unit.reached[i] ? " has a gradient now and had none in the first step"
                                  : " has no gradient now and had one in the first step") +
                 " of rank " + std::to_string(options_.groups[0].rank()) +
                 "; take static_order out of the options of " + options_.caller + "()");
    }
  }
}

std::vector<at::Tensor> Gradients::slots(size_t index) {
  Unit& unit = units_[index];
  std::vector<at::Tensor> slots(unit.ready.size());
  if (!sink_.keeps_rows()) return slots;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!unit.traps.empty()) unit.traps[i]->clear();
    const bool adds = options_.remainder == Remainder::kTrap && !fold() && unit.held[i];
    if (!adds) slots[i] = slot(index, row_, i);
  }
  return slots;
}

void Gradients::begin_grain(int64_t index, size_t part) {
  if (!fold()) {
    refuse_use("grain(" + std::to_string(index) + ") needs num_grains in the options of " +
               options_.caller + "()");
  }
  if (options_.ends_by_call && fold()->is_open()) end_of_backward();
  const bool is_reached = std::ranges::any_of(units_, [&](const Unit& unit) {
    return std::ranges::find(unit.parts, part) != unit.parts.end();
  });
  if (!is_reached) return;
  if (!fold()->is_open()) part_ = part;
  folds_[part_].begin(index);
  row_ = fold()->step().buffer;
  if (options_.remainder == Remainder::kTrap) return;
  for (const Unit& unit : units_) {
    for (const auto& entry : unit.of.parameters) entry.tensor.mutable_grad().reset();
  }
}

void Gradients::set_weight(double weight, std::optional<double> total) {
  if ((!total && options_.average != Average::kWeighted) || !(weight >= 0)) {
    refuse_use("set_weight(" + std::to_string(weight) +
               ") needs Average::kWeighted and a weight that is not negative");
  }
  weight_ = weight;
  total_weight_ = total;
}

void Gradients::set_accumulating(bool accumulating) {
  if (fold() && accumulating) {
    refuse_use("accumulate() has no meaning with stable bits; call grain(index) instead");
  }
  accumulating_ = accumulating;
}

void Gradients::expect(std::vector<int64_t> backwards, int64_t all) {
  if (fold() || (!backwards.empty() && backwards.size() != units_.size())) {
    refuse_use("expect(): with stable bits grains say what a step has; else each of the " +
               std::to_string(units_.size()) + " units has a number of backwards");
  }
  expected_ = std::move(backwards);
  expected_in_all_ = all;
}

}  // namespace hanji::parallel
