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

class Recorder : public lens::Observer {
 public:
  void before(const lens::Operation& operation) override {
    const std::string name = name_of(operation);
    const auto [place, is_new] = known_.try_emplace(name, list_.size());
    if (is_new) {
      const auto bytes = static_cast<double>(lens::moved_bytes(operation));
      list_.push_back({.name = name,
                       .count = 0,
                       .estimate = plan::estimated_seconds(lens::flops(operation), 2 * bytes),
                       .index = list_.size()});
      calls_.push_back(call_of(operation));
      bytes_.push_back(static_cast<int64_t>(2 * bytes));
    }
    ++list_[place->second].count;
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

  std::unordered_map<std::string, size_t> known_;
  std::vector<plan::Operation> list_;
  std::vector<RecordedCall> calls_;
  std::vector<int64_t> bytes_;
};

}  // namespace

std::vector<RecordedOperation> record_operations(layers::Model& model, const layers::Batch& batch,
                                                 const std::vector<layers::LayerScope>& scopes) {
  Recorder recorder;
  const auto parameters = parallel::learning_parameters(model);
  for (const auto& one : parameters) copy_gradient_of(one.tensor);
  {
    const lens::Scope seen(recorder);
    model.loss_sum(batch, scopes).sum.backward();
  }
  for (const auto& one : parameters) parallel::remove_gradient_hook(one.tensor);
  return recorder.take();
}

}  // namespace hanji::train
