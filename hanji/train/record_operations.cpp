#include "hanji/train/record_operations.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "hanji/lens/cost.h"
#include "hanji/lens/observer.h"
#include "hanji/parallel/gradients/gradient_hook.h"
#include "hanji/parallel/named_parameter.h"

namespace hanji::train {
namespace {

using Values = std::vector<c10::IValue>;

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  const std::string sizes = fmt::format("[{}]", fmt::join(tensor.sizes(), ","));
  const bool usual = tensor.scalar_type() == at::kFloat;
  return usual ? sizes : sizes + c10::toString(tensor.scalar_type());
}

/// Of a list's members; empty for what decides nothing, such as devices and generators.
std::string describe(const c10::IValue& value) {
  if (value.isTensor()) return describe(value.toTensor());
  if (value.isInt()) return fmt::to_string(value.toInt());
  if (value.isDouble()) return fmt::to_string(value.toDouble());
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (!value.isList()) return "";
  std::string all;
  for (const c10::IValue& one : value.toListRef()) all += (all.empty() ? "" : ",") + describe(one);
  return "(" + all + ")";
}

std::string name_of(const lens::Operation& operation) {
  std::string name = operation.name();
  for (const c10::IValue& value : operation.arguments()) {
    if (const std::string text = describe(value); !text.empty()) name += " " + text;
  }
  return name;
}

bool writes_arguments(const c10::FunctionSchema& schema) { return schema.is_mutable(); }

bool is_defined_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

/// The arguments of a call on tensors of their own.
Values own_copies(const Values& arguments) {
  Values copies;
  for (const c10::IValue& value : arguments) {
    if (!is_defined_tensor(value)) {
      copies.push_back(value);
      continue;
    }
    const at::Tensor& tensor = value.toTensor();
    copies.emplace_back(tensor.detach().clone().set_requires_grad(tensor.requires_grad()));
  }
  return copies;
}

/// Repeats one call of libtorch's.
struct RecordedCall {
  c10::OperatorHandle handle;
  Values arguments;
  bool with_gradients = false;

  /// The first tensor is what the operation before has made, and still in the caches.
  OperationCall on_own_tensors() const {
    const auto own = std::make_shared<Values>(own_copies(arguments));
    const auto stack = std::make_shared<Values>();
    const auto write_first = [call = *this, own] {
      const lens::Pause unseen;
      const at::NoGradGuard no_grad;
      const auto first = std::ranges::find_if(*own, is_defined_tensor);
      if (first != own->end())
        first->toTensor().copy_(call.arguments[first - own->begin()].toTensor());
    };
    const auto run = [call = *this, own, stack] {
      const lens::Pause unseen;
      const at::AutoGradMode mode(call.with_gradients);
      *stack = *own;
      call.handle.callBoxed(*stack);
      // What a backward gives is read once, by the operation that follows.
      if (!call.with_gradients) stack->clear();
    };
    return {write_first, run, [stack] { stack->clear(); }};
  }
};

/// As a step moves it into the buffer of all gradients.
void copy_gradient_of(const at::Tensor& parameter) {
  at::Tensor* gradient = &parameter.mutable_grad();
  parallel::add_gradient_hook(parameter, {"record_operations"}, [gradient] {
    const at::NoGradGuard no_grad;
    at::Tensor slot;
    {
      const lens::Pause unseen;
      slot = at::empty_like(*gradient);
    }
    slot.copy_(std::exchange(*gradient, {}));
  });
}

/// Where a forward and backward of a model is.
struct Place {
  int64_t layer = 0;
  bool is_backward = false;

  /// Follows the forward. The gradient of what a layer passes on is computed when all layers behind it are done,
  /// as a backward takes operations in reverse.
  layers::LayerScope scope() {
    return [this](int64_t index, layers::Flow flow, const layers::RunLayer& run) {
      layer = index;
      layers::Flow next = run(std::move(flow));
      for (const at::Tensor& one : next) {
        if (!one.requires_grad()) continue;
        one.register_hook([this, index](const at::Tensor&) { layer = std::min(layer, index); });
      }
      return next;
    };
  }
};

class Recorder : public lens::Observer {
 public:
  Recorder(const Place& place, int64_t num_layers)
      : place_(place), num_layers_(static_cast<size_t>(num_layers)) {}

  void before(const lens::Operation& operation) override {
    const std::string name = name_of(operation);
    const auto [place, is_new] = known_.try_emplace(name, list_.size());
    if (is_new) {
      const auto bytes = static_cast<double>(lens::moved_bytes(operation));
      const double flops = lens::flops(operation);
      list_.push_back({.name = name,
                       .count = 0,
                       .estimate = plan::estimated_seconds(flops, 2 * bytes),
                       .index = list_.size(),
                       .layers = std::vector<plan::LayerCalls>(num_layers_),
                       .is_product = flops > 0});
      calls_.push_back(call_of(operation));
      bytes_.push_back(static_cast<int64_t>(2 * bytes));
    }
    plan::Operation& one = list_[place->second];
    ++one.count;
    ++calls_here(one.layers[static_cast<size_t>(place_.layer)]);
  }

  std::vector<RecordedOperation> take() {
    std::vector<RecordedOperation> all;
    for (size_t i = 0; i < list_.size(); ++i) {
      all.push_back({list_[i], [call = calls_[i]] { return call.on_own_tensors(); }, bytes_[i]});
    }
    return all;
  }

 private:
  /// Gradients are recorded as in the call, but not into what the call itself overwrites.
  static RecordedCall call_of(const lens::Operation& operation) {
    const c10::FunctionSchema& schema = operation.schema();
    const bool with_gradients = at::GradMode::is_enabled() && !writes_arguments(schema);
    Values arguments;
    for (const c10::IValue& value : operation.arguments()) {
      if (!is_defined_tensor(value)) {
        arguments.push_back(value);
        continue;
      }
      const at::Tensor& tensor = value.toTensor();
      at::Tensor kept = tensor.detach();
      if (with_gradients && tensor.requires_grad()) kept.set_requires_grad(true);
      arguments.emplace_back(std::move(kept));
    }
    return {c10::Dispatcher::singleton().findSchemaOrThrow(schema.name().c_str(),
                                                           schema.overload_name().c_str()),
            std::move(arguments), with_gradients};
  }

  /// A backward without gradients of its own runs operations with them where it computes a layer again.
  double& calls_here(plan::LayerCalls& layer) const {
    if (!place_.is_backward) return layer.forward;
    return at::GradMode::is_enabled() ? layer.repeated : layer.backward;
  }

  const Place& place_;
  const size_t num_layers_;
  std::unordered_map<std::string, size_t> known_;
  std::vector<plan::Operation> list_;
  std::vector<RecordedCall> calls_;
  std::vector<int64_t> bytes_;
};

}  // namespace

std::vector<RecordedOperation> record_operations(layers::Model& model, const layers::Batch& batch,
                                                 const std::vector<layers::LayerScope>& scopes) {
  Place place;
  Recorder recorder(place, model.num_layers());
  std::vector<layers::LayerScope> followed = scopes;
  followed.insert(followed.begin(), place.scope());
  const auto parameters = parallel::learning_parameters(model);
  for (const auto& one : parameters) copy_gradient_of(one.tensor);
  {
    const lens::Scope seen(recorder);
    const at::Tensor loss = model.loss_sum(batch, followed).sum;
    place.is_backward = true;
    loss.backward();
  }
  for (const auto& one : parameters) parallel::remove_gradient_hook(one.tensor);
  return recorder.take();
}

}  // namespace hanji::train
