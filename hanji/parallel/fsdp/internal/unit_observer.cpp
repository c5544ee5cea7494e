#include "hanji/parallel/fsdp/internal/unit_observer.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "hanji/lens/operation.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {

/// Views read nothing, but what they give leads a backward to the parameter.
void UnitObserver::before(const lens::Operation& operation) {
  units_.clear();
  const bool in_backward = torch::autograd::get_current_graph_task_id() != -1;
  if (in_backward && !in_recomputation()) return;  // hooks have unsharded the units
  if (replaces_memory(operation.name())) return;
  operation.for_each_input([&](const at::Tensor& tensor) {
    const Held held = holder_of(tensor);
    if (held.model == nullptr && holder_of_replaced(tensor).get() == &model_) model_.check_placed();
    if (held.model.get() != &model_) return;
    if (std::ranges::find(units_, held.unit) == units_.end()) units_.push_back(held.unit);
  });
  if (!units_.empty() && !operation.is_view()) model_.modules().touch(units_);
}

void UnitObserver::after(const lens::Operation& operation) {
  if (units_.empty() || operation.is_view() || !at::GradMode::is_enabled()) return;
  std::vector<at::Tensor> outputs;
  operation.for_each_output([&](const at::Tensor& tensor) { outputs.push_back(tensor); });
  for (const size_t unit : units_) model_.modules().touched(unit, outputs);
}

}  // namespace hanji::parallel
