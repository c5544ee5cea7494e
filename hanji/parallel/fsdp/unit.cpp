#include "hanji/parallel/fsdp/unit.h"

#include <span>
#include <utility>

#include "hanji/layers/model.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"

namespace hanji::parallel {
namespace {

/// Any parameter tells who shards the module: there is no list of modules to look into.
std::shared_ptr<ShardedModel> model_of(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (auto held = holder_of(item.value()); held.model != nullptr) return held.model;
    if (auto model = holder_of_replaced(item.value()); model != nullptr) {
      model->check_placed();
      return model;
    }
  }
  for (const auto& child : module.children()) {
    if (auto model = model_of(*child); model != nullptr) return model;
  }
  return nullptr;
}

layers::Flow run_within(const std::shared_ptr<ShardedModel>& model, std::span<const size_t> units,
                        layers::Flow flow, const layers::RunLayer& run) {
  if (units.empty()) return run(std::move(flow));
  UnitCall call(model, units[0]);
  layers::Flow outputs = run_within(model, units.subspan(1), std::move(flow), run);
  call.leave(outputs);
  return outputs;
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

UnitCall::UnitCall(std::shared_ptr<ShardedModel> model, size_t unit)
    : unit_(unit), casts_(model->modules().enter(unit)) {
  model_ = std::move(model);
}

UnitCall::~UnitCall() {
  if (model_ != nullptr) model_->modules().leave(unit_, {});
}

void UnitCall::leave(const std::vector<at::Tensor>& outputs) {
  if (model_ == nullptr) return;
  const auto model = std::exchange(model_, nullptr);
  model->modules().leave(unit_, outputs);
}

layers::LayerScope unit_scope(const layers::Model& model) {
  return [&model](int64_t layer, layers::Flow flow, const layers::RunLayer& run) {
    const auto sharded = model_of(model);
    if (sharded == nullptr) return run(std::move(flow));
    return run_within(sharded, sharded->modules().read_by(layer), std::move(flow), run);
  };
}

}  // namespace hanji::parallel
