#include "hanji/parallel/fsdp/unit.h"

#include <torch/nn/module.h>

#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {
namespace {

/// Any parameter tells who shards the module: there is no list of modules to look into.
std::shared_ptr<ShardedModel> model_of(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (auto held = holder_of(item.value()); held.model != nullptr) return held.model;
  }
  for (const auto& child : module.children()) {
    if (auto model = model_of(*child); model != nullptr) return model;
  }
  return nullptr;
}

}  // namespace

UnitCall::UnitCall(const torch::nn::Module& module) {
  auto model = model_of(module);
  if (model == nullptr) return;
  const auto unit = model->modules().find(module);
  if (!unit) return;
  casts_ = model->modules().enter(*unit);
  model_ = std::move(model);
  unit_ = *unit;
}

UnitCall::~UnitCall() {
  if (model_ != nullptr) model_->modules().leave(unit_, {});
}

void UnitCall::leave(const std::vector<at::Tensor>& outputs) {
  if (model_ == nullptr) return;
  const auto model = std::exchange(model_, nullptr);
  model->modules().leave(unit_, outputs);
}

}  // namespace hanji::parallel
