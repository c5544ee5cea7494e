#include "hanji/parallel/fsdp/internal/unit_observer.h"

#include <torch/csrc/autograd/graph_task.h>

#include "hanji/lens/operation.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {

/// Views read nothing, but what they give leads a backward to the parameter.
void UnitObserver::before(const lens::Operation& operation) {
  unit_.reset();
  if (torch::autograd::get_current_graph_task_id() != -1) return;  // hooks have opened the units
  operation.for_each_input([&](const at::Tensor& tensor) {
    const Held held = holder_of(tensor);
    if (held.model.get() != &model_) return;
    if (!operation.is_view()) model_.touch(held.unit);
    unit_ = held.unit;
  });
}

void UnitObserver::after(const lens::Operation& operation) {
  if (!unit_ || operation.is_view()) return;
  std::vector<at::Tensor> outputs;
  operation.for_each_output([&](const at::Tensor& tensor) { outputs.push_back(tensor); });
  model_.touched(*unit_, outputs);
}

}  // namespace hanji::parallel
