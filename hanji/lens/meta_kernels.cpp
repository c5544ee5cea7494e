#include "hanji/lens/internal/meta_kernels.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/library.h>

#include <algorithm>

#include "hanji/base/status.h"
#include "hanji/lens/internal/arguments.h"
#include "hanji/lens/observer.h"

namespace hanji::lens {
namespace {

constexpr size_t kMaxStandInBytes = 64 << 20;

/// Indices are zeros, which every table has; of a large table one element stands for all.
at::Tensor stand_in(const at::Tensor& meta, bool is_written) {
  const auto options = meta.options().device(c10::kCPU).requires_grad(false);
  const bool large = meta.nbytes() > kMaxStandInBytes;
  if (!is_written && (large || !c10::isFloatingType(meta.scalar_type()))) {
    return at::zeros({1}, options).expand(meta.sizes());
  }
  return at::empty_strided(meta.sizes(), meta.strides(), options);
}

at::Tensor without_memory(const at::Tensor& real) {
  return at::empty_strided(real.sizes(), real.strides(), real.options().device(c10::kMeta));
}

/// A list with every tensor replaced.
template <class Replace>
c10::IValue replaced(const c10::IValue& value, const Replace& replace) {
  auto list = value.toList().copy();
  for (size_t i = 0; i < list.size(); ++i) {
    const c10::IValue element = list.get(i);
    if (element.isTensor() && element.toTensor().defined()) {
      list.set(i, replace(element.toTensor()));
    }
  }
  return list;
}

bool holds_tensors(const c10::IValue& value) {
  bool any = false;
  if (value.isList()) {
    for_each_tensor(value.toListRef(), [&](const at::Tensor&) { any = true; });
  }
  return any;
}

/// Whether shapes alone do not tell the result.
bool needs_elements(const c10::OperatorHandle& handle) {
  if (handle.hasTag(at::Tag::data_dependent_output) ||
      handle.hasTag(at::Tag::dynamic_output_shape)) {
    return true;
  }
  const auto& results = handle.schema().returns();
  return std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
    return !result.type()->isSubtypeOf(*c10::TensorType::get()) &&
           !result.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

/// What is made for a moment is nobody's memory.
class Unreported : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {}
  bool memoryProfilingEnabled() const override { return false; }
};

/// The kernel of an operation that has none for the meta device.
void learn_shapes(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                  torch::jit::Stack* stack) {
  const Pause pause;
  const c10::DebugInfoGuard unreported(c10::DebugInfoKind::PROFILER_STATE,
                                       std::make_shared<Unreported>());
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& schema = handle.schema();
  if (needs_elements(handle)) {
    throw Error(base::unsupported(schema.name() +
                                  " needs the elements of a tensor without memory; "
                                  "give it some by materialise(), or leave this operation out"));
  }
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count),
                                           stack->end());
  stack->resize(stack->size() - count);
  auto real = arguments;
  for (size_t i = 0; i < count; ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    const bool is_written = alias && alias->isWrite();
    const auto replace = [&](const at::Tensor& tensor) {
      return tensor.is_meta() ? stand_in(tensor, is_written) : tensor;
    };
    if (real[i].isTensor() && real[i].toTensor().defined()) {
      real[i] = replace(real[i].toTensor());
    } else if (holds_tensors(real[i])) {
      real[i] = replaced(real[i], replace);
    }
  }
  set_argument(handle, real, "device", c10::Device(c10::kCPU));
  auto results = real;
  handle.callBoxed(&results);
  for (const auto& result : results) {
    if (holds_tensors(result)) {
      stack->push_back(replaced(result, without_memory));
    } else if (result.isTensor() && result.toTensor().defined()) {
      const auto same = [&](const c10::IValue& own) {
        return own.isTensor() && own.toTensor().is_same(result.toTensor());
      };
      const auto own = std::find_if(real.begin(), real.end(), same);
      stack->push_back(own == real.end() ? c10::IValue(without_memory(result.toTensor()))
                                         : arguments[static_cast<size_t>(own - real.begin())]);
    } else {
      stack->push_back(result);
    }
  }
}

/// Whether both tensors are the same elements of the same memory.
bool is_one(const std::vector<c10::IValue>& two) {
  const at::Tensor &a = two[0].toTensor(), &b = two[1].toTensor();
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

}  // namespace

MetaKernels::MetaKernels() = default;

MetaKernels::~MetaKernels() = default;

/// Registers the kernel that libtorch misses, by its words "aten::relu: attempted to run this ..".
bool MetaKernels::add(const std::string& error) {
  const std::string prefix = "aten::";
  const size_t end = error.find(": attempted to run this operator with Meta tensors");
  if (end == std::string::npos || error.compare(0, prefix.size(), prefix) != 0) return false;
  const std::string name = error.substr(prefix.size(), end - prefix.size());
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) return false;
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                  c10::DispatchKey::Meta, __FILE__, __LINE__);
  library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&learn_shapes>());
  names_.push_back(name);
  libraries_.push_back(std::move(library));
  return true;
}

void MetaKernels::call(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack) {
  bool any_meta = false;
  for_each_tensor(stack, [&](const at::Tensor& tensor) { any_meta |= tensor.is_meta(); });
  if (!any_meta) return call_below(handle, stack);
  if (handle.schema().name() == "aten::equal" && is_one(stack)) {
    stack = {true};  // attention asks it of queries, keys and values
    return;
  }
  const auto arguments = stack;
  while (true) {
    try {
      return call_below(handle, stack);
    } catch (const c10::NotImplementedError& error) {
      if (!add(error.what_without_backtrace())) {
        throw Error(base::unsupported(handle.schema().name() +
                                      " does not work on tensors without memory; give them some "
                                      "by materialise(), or leave this operation out"));
      }
      stack = arguments;
    }
  }
}

}  // namespace hanji::lens
