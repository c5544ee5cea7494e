#include "hanji/parallel/fsdp/internal/gradients.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::parallel {

Gradients::Gradients(const std::vector<FlatUnit*>& units, Setup setup, Events events)
    : setup_(std::move(setup)), events_(std::move(events)) {
  const ShardingOptions& options = setup_.options;
  if (options.num_grains > 0) fold_.emplace(options.num_grains, options.owners, everyone().rank());
  for (FlatUnit* flat : units) {
    const size_t size = flat->parameters().size();
    Unit& unit = units_.emplace_back();
    unit.flat = flat;
    unit.first_parameter = num_parameters_;
    unit.filled.resize(size);
    unit.ready.resize(size);
    unit.used.resize(size);
    num_parameters_ += size;
    if (!fold_) continue;
    unit.steps = std::make_shared<const schedule::StepList>(
        schedule::tree_all_reduce(fold_->tree(), flat->plan().flat.count));
  }
  place_buffers();
  install_hooks();
}

Gradients::~Gradients() {
  for (const Unit& unit : units_) {
    for (const auto& entry : unit.flat->parameters()) remove_gradient_hook(entry.tensor);
  }
}

void Gradients::install_hooks() {
  for (size_t u = 0; u < units_.size(); ++u) {
    const auto& parameters = units_[u].flat->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      units_[u].traps.push_back(std::make_unique<GradientTrap>(parameters[i], setup_.caller));
      add_gradient_hook(parameters[i].tensor, setup_.caller, [this, u, i] { on_gradient(u, i); });
    }
  }
}

void Gradients::on_gradient(size_t index, size_t position) {
  Unit& unit = units_[index];
  const std::string& name = unit.flat->parameters()[position].name;
  if (fold_ && !fold_->is_open()) {
    throw Error(base::invalid_argument("a backward() outside any grain reached parameter " + name +
                                       "; call grain(index) before each backward(), or take "
                                       "num_grains out of the options"));
  }
  arm();
  if (unit.ready[position]) {
    throw Error(base::invalid_argument("parameter " + name +
                                       " got its gradient twice in one backward(); wrap all but "
                                       "the last use in accumulate()"));
  }
  const at::NoGradGuard no_grad;
  need_rows(unit);
  take(unit, position);
  unit.used[position] = 1;
  mark_ready(index, position);
  launch_ready_units();
  setup_.group.advance();
  if (setup_.near) setup_.near->advance();
}

/// The gradient leaves the parameter: what stays there would be a whole one on every rank.
void Gradients::take(Unit& unit, size_t position) {
  at::Tensor& gradient = unit.flat->parameters()[position].tensor.mutable_grad();
  const at::Tensor dense = gradient.layout() == c10::kStrided ? gradient : gradient.to_dense();
  at::Tensor target = slot(unit, row_, position);
  if (unit.filled[position] && !fold_) {
    target.add_(dense);
  } else if (dense.data_ptr() != target.data_ptr()) {
    target.copy_(dense);
  }
  unit.filled[position] = 1;
  unit.traps[position]->set();
}

void Gradients::arm() {
  if (in_checkpointed_backward()) return;  // its parameters get their gradients after it
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == armed_graph_task_) return;
  if (armed_graph_task_ != -1) {
    throw Error(base::invalid_argument(
        "an earlier backward() of this module ended by an exception, so its gradients were sent "
        "only in part; shard the module anew on every rank"));
  }
  armed_graph_task_ = task;
  keeps_graph_ = torch::autograd::get_current_graph_task_keep_graph();
  torch::autograd::Engine::get_default_engine().queue_callback([this] { end_of_backward(); });
  events_.on_first();
}

void Gradients::mark_ready(size_t index, size_t position) {
  Unit& unit = units_[index];
  unit.ready[position] = 1;
  if (fold_) fold_in(unit, position);
  if (++unit.num_ready == unit.ready.size()) events_.on_unit(index);
}

/// Element-wise sums do not care which parameter comes first.
void Gradients::fold_in(Unit& unit, size_t position) {
  for (int i = 0; i < fold_->step().num_combines; ++i) {
    slot(unit, row_ - i - 1, position).add_(slot(unit, row_ - i, position));
  }
}

void Gradients::finish() {
  if (fold_ && !fold_->is_open() && fold_->grains().size() > 0) {
    throw Error(base::invalid_argument("finish() outside any grain; call grain(index)"));
  }
  end_of_backward();
}

/// The end of a backward: of all gradients, or in stable of those of one grain.
void Gradients::end_of_backward() {
  const at::NoGradGuard no_grad;
  const bool reduces = !accumulating_ && is_last_grain();
  if (fold_ || reduces) {
    for (size_t u = units_.size(); u-- > 0;) {
      Unit& unit = units_[u];
      if (unit.num_ready == unit.ready.size()) continue;
      need_rows(unit);
      for (size_t i = 0; i < unit.ready.size(); ++i) {
        if (unit.ready[i]) continue;
        if (fold_) slot(unit, row_, i).zero_();
        unit.ready[i] = 1;
        ++unit.num_ready;
        if (fold_ && fold_->is_open()) fold_in(unit, i);
      }
      launch_ready_units();
    }
  }
  events_.on_end();
  if (reduces) reduce_all();
  reset();
  if (fold_) fold_->end();
}

void Gradients::reset() {
  const bool reduced = num_launched_ > 0;
  for (Unit& unit : units_) {
    std::ranges::fill(unit.ready, 0);
    unit.num_ready = 0;
    unit.work = {};
    if (reduced) std::ranges::fill(unit.used, 0);
  }
  num_launched_ = num_retired_ = 0;
  armed_graph_task_ = -1;
  if (reduced) row_ = 0;
}

void Gradients::begin_grain(int64_t index) {
  if (!fold_) {
    throw Error(base::invalid_argument("grain(" + std::to_string(index) +
                                       ") needs num_grains in the options"));
  }
  fold_->begin(index);
  row_ = fold_->step().buffer;
}

const GrainFold& Gradients::fold() const {
  if (fold_) return *fold_;
  throw Error(base::invalid_argument("there are no grains here: num_grains is 0 in the options"));
}

void Gradients::set_weight(double weight) {
  if (setup_.options.average != Average::kWeighted || !(weight >= 0)) {
    throw Error(
        base::invalid_argument("set_weight(" + std::to_string(weight) +
                               ") needs Average::kWeighted and a weight that is not negative"));
  }
  weight_ = weight;
}

void Gradients::set_accumulating(bool accumulating) {
  if (fold_ && accumulating) {
    throw Error(base::invalid_argument(
        "accumulate() has no meaning with stable bits; call grain(index) instead"));
  }
  accumulating_ = accumulating;
}

}  // namespace hanji::parallel
