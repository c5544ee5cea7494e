#include "hanji/lens/kept_results.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/lens/generator_state.h"
#include "hanji/lens/internal/arguments.h"
#include "hanji/lens/internal/interceptor.h"
#include "hanji/lens/operation.h"
#include "hanji/lens/saved_tensors.h"

namespace hanji::lens {

namespace autograd = torch::autograd;
using autograd::variable_list;

using NodePointer = std::remove_cvref_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;

/// An argument that an operation has saved: the value of the second time.
struct ArgumentSlot {
  at::Tensor value;
};

namespace {

variable_list tensors_in(c10::ArrayRef<c10::IValue> values) {
  variable_list found;
  for_each_tensor(values, [&](const at::Tensor& tensor) { found.push_back(tensor); });
  return found;
}

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

}  // namespace

/// One call whose results are kept, and its node of the graph, which computes the gradients.
struct KeptCall {
  std::string name;
  std::vector<c10::IValue> results;  ///< Tensors without a graph.
  std::vector<int> input_of_node;    ///< By tensor of results: its number there; -1: no gradient.
  std::vector<int> argument_of;  ///< By edge of the node: which tensor of the arguments; -1: none.
  std::vector<std::shared_ptr<ArgumentSlot>> slots;  ///< By tensor of the arguments.
  NodePointer node;
  bool is_written = false;  ///< Later, in place: then what is kept are copies.
  at::Tensor random_after;  ///< The generator's state, if the operation drew from it.
};

namespace {

class SlotTensor : public SavedTensor {
 public:
  explicit SlotTensor(std::shared_ptr<ArgumentSlot> slot) : slot_(std::move(slot)) {}
  at::Tensor get() override { return slot_->value; }

 private:
  std::shared_ptr<ArgumentSlot> slot_;
};

/// Of a call that is kept: its arguments will come again, so nothing of them is kept.
class ArgumentSaver : public Saver {
 public:
  ArgumentSaver(const variable_list& arguments, KeptCall& call)
      : arguments_(arguments), call_(call) {}
  std::unique_ptr<SavedTensor> save(const at::Tensor& tensor) override {
    if (!is_plain(tensor)) return keep_as_is(tensor);
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (is_plain(arguments_[i]) && is_same(arguments_[i], tensor)) {
        return std::make_unique<SlotTensor>(call_.slots[i]);
      }
    }
    return keep_as_is(tensor);
  }

 private:
  const variable_list& arguments_;
  KeptCall& call_;
};

/// A tensor that is passed by, unseen by autograd.
struct Unseen {
  at::Tensor tensor;
};

/// Where the graph of a kept call ends: the graph that made its argument is not held.
struct Source : autograd::Function<Source> {
  static at::Tensor forward(autograd::AutogradContext* /*context*/, const at::Tensor& /*anchor*/,
                            const Unseen& argument) {
    return argument.tensor.detach();
  }
  static variable_list backward(autograd::AutogradContext* /*context*/, variable_list /*unused*/) {
    return variable_list(2);  // nothing asks for it: see Stand
  }
};

/// The arguments, those that learn by way of a Source; false: some cannot be exchanged.
bool with_sources(std::vector<c10::IValue>& stack, const at::Tensor& anchor) {
  const auto exchanged = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad()) return tensor;
    return Source::apply(anchor, Unseen{tensor.detach()});
  };
  for (c10::IValue& value : stack) {
    if (value.isTensor()) {
      value = exchanged(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(exchanged(tensor));
      value = list;
    } else if (value.isList() && !tensors_in(value.toListRef()).empty()) {
      return false;
    }
  }
  return true;
}

/// Which argument each edge of the node leads to; false: it leads elsewhere.
bool match_edges(KeptCall& call, const variable_list& sources) {
  for (const autograd::Edge& edge : call.node->next_edges()) {
    call.argument_of.push_back(-1);
    if (!edge.is_valid()) continue;
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].grad_fn() == edge.function) call.argument_of.back() = static_cast<int>(i);
    }
    if (call.argument_of.back() < 0) return false;
  }
  return true;
}

/// Takes the results that the stack holds; false: they cannot be kept.
bool take_results(KeptCall& call, const variable_list& arguments,
                  const std::vector<c10::IValue>& stack) {
  for (const c10::IValue& value : stack) {
    if (!value.isTensor() || !value.toTensor().defined()) {
      if (value.isTensorList()) return false;
      call.results.push_back(value);
      continue;
    }
    const at::Tensor& tensor = value.toTensor();
    const auto aliases = [&](const at::Tensor& argument) { return argument.is_alias_of(tensor); };
    if (!is_plain(tensor) || std::any_of(arguments.begin(), arguments.end(), aliases)) return false;
    const bool learns = tensor.requires_grad();
    if (learns && call.node && call.node != tensor.grad_fn()) return false;
    if (learns) call.node = tensor.grad_fn();
    call.input_of_node.push_back(learns ? static_cast<int>(tensor.output_nr()) : -1);
    call.results.emplace_back(tensor.detach());
  }
  return !call.node || match_edges(call, arguments);
}

struct Capsule : torch::CustomClassHolder {
  explicit Capsule(std::shared_ptr<KeptCall> of) : call(std::move(of)) {}
  std::shared_ptr<KeptCall> call;
};

/// Stands for the node of the first time in the graph of the second.
struct Stand : autograd::Function<Stand> {
  static variable_list forward(autograd::AutogradContext* context,
                               const c10::intrusive_ptr<Capsule>& capsule,
                               at::TensorList arguments) {
    context->set_materialize_grads(false);
    context->saved_data["call"] = c10::IValue::make_capsule(capsule);
    const auto& call = capsule->call;
    for (size_t i = 0; i < arguments.size(); ++i) {
      call->slots[i]->value = arguments[i].detach();
    }
    variable_list outputs, constants;
    for (const at::Tensor& kept : tensors_in(call->results)) {
      outputs.push_back(call->is_written ? kept.clone() : kept.detach());
      if (call->input_of_node[outputs.size() - 1] < 0) constants.push_back(outputs.back());
    }
    context->mark_non_differentiable(constants);
    return outputs;
  }

  static variable_list backward(autograd::AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["call"].toCapsule();
    const KeptCall& call = *static_cast<const Capsule&>(*capsule).call;
    variable_list inputs(call.node->num_inputs());
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (call.input_of_node[i] >= 0)
        inputs[static_cast<size_t>(call.input_of_node[i])] = gradients[i];
    }
    variable_list found = run(call, std::move(inputs));
    variable_list result(1 + call.slots.size());  // the call itself, then the arguments
    for (size_t i = 0; i < found.size(); ++i) {
      const int argument = call.argument_of[i];
      if (argument >= 0) result[1 + static_cast<size_t>(argument)] = std::move(found[i]);
    }
    return result;
  }

 private:
  /// A node computes what its edges ask for in this backward, so they lead where ours do meanwhile.
  static variable_list run(const KeptCall& call, variable_list inputs) {
    const autograd::edge_list& of_arguments = autograd::get_current_node()->next_edges();
    autograd::edge_list& edges = call.node->next_edges();
    const autograd::edge_list own = edges;
    for (size_t i = 0; i < edges.size(); ++i) {
      if (call.argument_of[i] >= 0)
        edges[i] = of_arguments[static_cast<size_t>(call.argument_of[i])];
    }
    variable_list found = (*call.node)(std::move(inputs));
    edges = own;
    return found;
  }
};

/// The results of a kept call, in the graph of the caller.
std::vector<c10::IValue> give(const std::shared_ptr<KeptCall>& call,
                              const variable_list& arguments) {
  variable_list outputs =
      Stand::apply(c10::make_intrusive<Capsule>(call), at::TensorList(arguments));
  std::vector<c10::IValue> stack = call->results;
  size_t next = 0;
  for (c10::IValue& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) value = std::move(outputs[next++]);
  }
  return stack;
}

}  // namespace

/// The first time: makes every operation, and takes what the chosen ones give.
class KeptResults::Recorder : public Interceptor {
 public:
  explicit Recorder(KeptResults& to) : to_(to) {}

  void call(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
            std::vector<c10::IValue>& stack) override {
    if (is_composite(handle)) return call_parts(handle, keys, stack);
    const int64_t number = to_.num_operations_++;
    if (handle.schema().is_mutable()) {
      save_written(handle.schema(), stack);
      return call_below(handle, stack);
    }
    if (!to_.keeps_(handle.schema().name())) return call_below(handle, stack);
    const auto call = make_kept(handle, stack);
    if (!call) return call_below(handle, stack);
    stack = give(call, tensors_in(stack));
    to_.calls_[number] = call;
    for (const at::Tensor& kept : tensors_in(call->results)) {
      by_storage_[kept.storage().unsafeGetStorageImpl()] = call;
    }
  }

 private:
  /// By memory and not by version: some views, aten::_unsafe_view among them, do not share that.
  void save_written(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& stack) {
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      for (const at::Tensor& tensor : tensors_in({stack[i]})) {
        if (!tensor.has_storage()) continue;
        const auto found = by_storage_.find(tensor.storage().unsafeGetStorageImpl());
        if (found == by_storage_.end()) continue;
        copy_results(*found->second);
        by_storage_.erase(found);
      }
    }
  }
  static void copy_results(KeptCall& call) {
    if (std::exchange(call.is_written, true)) return;
    for (c10::IValue& value : call.results) {
      if (value.isTensor() && value.toTensor().defined()) value = value.toTensor().clone();
    }
  }

  /// Null: the call cannot be kept, and nothing has happened.
  std::shared_ptr<KeptCall> make_kept(const c10::OperatorHandle& handle,
                                      const std::vector<c10::IValue>& stack) {
    const auto call = std::make_shared<KeptCall>();
    call->name = handle.schema().name();
    std::vector<c10::IValue> own = stack;
    if (!with_sources(own, anchor_)) return nullptr;
    const variable_list arguments = tensors_in(own);
    for (size_t i = 0; i < arguments.size(); ++i) {
      call->slots.push_back(std::make_shared<ArgumentSlot>());
    }
    const bool draws = handle.hasTag(at::Tag::nondeterministic_seeded);
    const at::Tensor random_before = draws ? generator_state() : at::Tensor();
    ArgumentSaver saver(arguments, *call);
    {
      const SaverScope scope(saver);
      call_below(handle, own);
    }
    if (draws) call->random_after = generator_state();
    if (take_results(*call, arguments, own)) return call;
    if (draws) set_generator_state(random_before);
    return nullptr;
  }

  std::unordered_map<const void*, std::shared_ptr<KeptCall>> by_storage_;
  at::Tensor anchor_ = at::zeros({}).requires_grad_();
  KeptResults& to_;
};

/// A second time: gives what was kept instead of making it.
class KeptResults::Repeater : public Interceptor {
 public:
  explicit Repeater(const KeptResults& from) : from_(from) {}

  void call(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
            std::vector<c10::IValue>& stack) override {
    if (is_composite(handle)) return call_parts(handle, keys, stack);
    const auto found = from_.calls_.find(next_++);
    if (found == from_.calls_.end()) return call_below(handle, stack);
    const std::shared_ptr<KeptCall>& call = found->second;
    const variable_list arguments = tensors_in(stack);
    if (call->name != handle.schema().name() || arguments.size() != call->slots.size()) {
      throw Error(
          base::invalid_argument("kept results: operation " + std::to_string(next_ - 1) + " was " +
                                 call->name + " the first time and is " + handle.schema().name() +
                                 " now; the function must do the same twice, or keep nothing"));
    }
    stack = give(call, arguments);
    if (call->random_after.defined()) set_generator_state(call->random_after);
  }

 private:
  const KeptResults& from_;
  int64_t next_ = 0;
};

KeptResults::KeptResults(KeepRule keeps) : keeps_(std::move(keeps)) {}
KeptResults::~KeptResults() = default;

std::vector<at::Tensor> KeptResults::first(const Function& fn) {
  Recorder recorder(*this);
  const InterceptorScope scope(recorder);
  return fn();
}

void KeptResults::let_go() {
  for (const auto& [number, call] : calls_) {
    for (const auto& slot : call->slots) slot->value.reset();
  }
}

std::vector<at::Tensor> KeptResults::again(const Function& fn) {
  Repeater repeater(*this);
  const InterceptorScope scope(repeater);
  return fn();
}

int64_t KeptResults::num_kept() const { return static_cast<int64_t>(calls_.size()); }

int64_t KeptResults::kept_bytes() const {
  int64_t bytes = 0;
  for (const auto& [number, call] : calls_) {
    for (const at::Tensor& kept : tensors_in(call->results)) {
      bytes += static_cast<int64_t>(kept.nbytes());
    }
  }
  return bytes;
}

KeepRule keep_products() {
  return [](const std::string& operation) {
    constexpr std::array<std::string_view, 8> kNames{
        "aten::mm",     "aten::addmm",       "aten::bmm",          "aten::baddbmm",
        "aten::addbmm", "aten::convolution", "aten::_convolution", "aten::mv"};
    return std::find(kNames.begin(), kNames.end(), operation) != kNames.end() ||
           operation.rfind("aten::_scaled_dot_product_", 0) == 0 ||
           operation.rfind("mkldnn::_linear", 0) == 0;
  };
}

}  // namespace hanji::lens
