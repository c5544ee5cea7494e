#include "hanji/lens/internal/recorder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <string_view>
#include <unordered_set>

#include "hanji/base/status.h"
#include "hanji/lens/generator_state.h"
#include "hanji/lens/internal/arguments.h"
#include "hanji/lens/internal/random_values.h"
#include "hanji/lens/internal/replay.h"

namespace hanji::lens {
namespace {

constexpr int64_t kSmallBytes = 1 << 20;

using Names = std::unordered_set<std::string_view>;

/// Change the tensor's shape or its place in the graph, and no element.
bool only_reshapes(std::string_view name) {
  static const Names names = {
      "aten::t_",          "aten::transpose_",     "aten::squeeze_",    "aten::unsqueeze_",
      "aten::as_strided_", "aten::swapaxes_",      "aten::swapdims_",   "aten::detach_",
      "aten::set_data",    "aten::requires_grad_", "aten::retain_grad", "aten::_backward"};
  return names.count(name) != 0;
}

/// Give a tensor other memory than the tape knows of.
bool cannot_be_repeated(std::string_view name) {
  static const Names names = {"aten::resize_", "aten::resize_as_", "aten::set_"};
  return names.count(name) != 0;
}

/// Whose results depend on the elements, and are no tensors or of a shape that depends on them.
bool reads_elements(std::string_view name) {
  static const Names names = {"aten::item",          "aten::_local_scalar_dense",
                              "aten::is_nonzero",    "aten::equal",
                              "aten::allclose",      "aten::nonzero",
                              "aten::unique2",       "aten::_unique2",
                              "aten::masked_select", "aten::isclose"};
  return names.count(name) != 0;
}

bool is_meta(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.is_meta();
}

bool any_tensor(c10::ArrayRef<c10::IValue> values) {
  bool any = false;
  for_each_tensor(values, [&](const at::Tensor&) { any = true; });
  return any;
}

/// Every handle to the tensor sees that it has no memory now; it stays the leaf that it is.
void become(const at::Tensor& tensor, const at::Tensor& other) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(other.getIntrusivePtr());
}

}  // namespace

Recorder::Known* Recorder::find(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const auto place = known_.find(tensor.storage().unsafeGetStorageImpl());
  return place == known_.end() ? nullptr : &place->second;
}

int Recorder::add(const at::Tensor& tensor, bool has_memory) {
  const int number = static_cast<int>(tape_->storages.size());
  tape_->storages.push_back({static_cast<int64_t>(tensor.storage().nbytes()), {}, {}, {}});
  known_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(),
                          Known{number, tensor.storage(), has_memory});
  return number;
}

Slot Recorder::slot_of(const at::Tensor& tensor) {
  return {find(tensor)->number, tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec(),
          tensor.storage_offset()};
}

/// What was written through a pointer becomes the first content.
void Recorder::take_memory(const at::Tensor& tensor) {
  Known* known = find(tensor);
  if (!known || !known->has_memory) return;
  const c10::NoGradGuard no_grad;
  const int number = known->number;
  Storage& storage = tape_->storages[static_cast<size_t>(number)];
  auto bytes = on_storage({number, at::kByte, {storage.bytes}, {1}, 0}, known->storage);
  if (!storage.literal.defined() && storage.bytes > 0 && bytes.any().item<bool>()) {
    storage.literal = bytes.clone();
  }
  const auto meta = at::empty_strided(tensor.sizes(), tensor.strides(),
                                      tensor.options().device(c10::kMeta).requires_grad(false));
  const auto* former = tensor.storage().unsafeGetStorageImpl();
  become(tensor, meta);
  known_.erase(former);
  known_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(),
                          Known{number, tensor.storage(), false});
}

/// A tensor of the tape with the elements of one that was made elsewhere.
at::Tensor Recorder::stand_in(const at::Tensor& real) {
  const c10::NoGradGuard no_grad;
  auto copy = real.detach().to(c10::kCPU).contiguous().clone();
  auto meta = at::empty_strided(copy.sizes(), copy.strides(), copy.options().device(c10::kMeta));
  const int number = add(meta, false);
  if (copy.numel() > 0) {
    tape_->storages[static_cast<size_t>(number)].literal = copy.view({-1}).view(at::kByte);
  }
  return meta;
}

void Recorder::call(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                    std::vector<c10::IValue>& stack) {
  const size_t count = handle.schema().arguments().size();
  std::vector<c10::IValue> own(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  stack.resize(stack.size() - count);
  bool known = false;
  for_each_tensor(own, [&](const at::Tensor& tensor) {
    take_memory(tensor);
    known = known || find(tensor) != nullptr;
  });
  if (known && reads_elements(handle.schema().name())) {
    read(handle, own);
  } else if (known) {
    record(handle, own);
  } else if (position_of(handle, "device") >= 0 && !any_tensor(own)) {
    make(handle, own);
  } else {
    call_below(handle, own);
  }
  for (auto& value : own) stack.push_back(std::move(value));
}

void Recorder::make(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack) {
  Entry entry{handle, {}, {}, {}, {}, 0};
  const bool writable = handle.schema().name() == "aten::empty";
  set_argument(handle, stack, "device", c10::Device(c10::kMeta));
  set_argument(handle, stack, "pin_memory", c10::IValue());
  set_argument(handle, stack, "generator", c10::IValue());
  entry.arguments.assign(stack.begin(), stack.end());
  if (handle.hasTag(at::Tag::nondeterministic_seeded)) entry.draw = ++draws_;
  call_without_memory(entry, stack);
  if (!stack.back().isTensor() || !is_meta(stack.back().toTensor())) return;
  const at::Tensor result = stack.back().toTensor();
  const int type = position_of(handle, "dtype");  // the default may be another one later
  if (type >= 0) entry.arguments[static_cast<size_t>(type)] = c10::IValue(result.scalar_type());
  if (writable && static_cast<int64_t>(result.nbytes()) <= kSmallBytes) {
    auto real =
        at::empty_strided(result.sizes(), result.strides(), result.options().device(c10::kCPU));
    std::memset(real.data_ptr(), 0, real.nbytes());
    stack.back() = real;
    add(real, true);
    entry.results = {slot_of(real)};
    const int number = entry.results[0]->storage;
    entry.writes = {number};
    tape_->storages[static_cast<size_t>(number)].entries.push_back(
        static_cast<int>(tape_->entries.size()));
    tape_->entries.push_back(std::move(entry));
    return;
  }
  note_results(std::move(entry), stack);
}

/// A tensor from elsewhere is replaced by its stand-in: below, operations meet no memory.
Slot Recorder::argument(at::Tensor& tensor, Entry& entry, bool is_written) {
  if (is_written && !find(tensor)) {
    throw Error(base::unsupported("deferred: " + entry.name() +
                                  " writes into a tensor that was made before hanji::deferred "
                                  "began; it would have no memory to take the values from"));
  }
  if (!find(tensor)) tensor = stand_in(tensor);
  auto slot = slot_of(tensor);
  (is_written ? entry.writes : entry.reads).push_back(slot.storage);
  if (is_written) entry.reads.push_back(slot.storage);
  return slot;
}

Value Recorder::value_of(c10::IValue& value, Entry& entry, bool is_written) {
  if (value.isTensor() && value.toTensor().defined()) {
    at::Tensor tensor = value.toTensor();
    if (!find(tensor) && tensor.dim() == 0) return c10::IValue(tensor.detach().clone());
    auto slot = argument(tensor, entry, is_written);
    value = tensor;
    return slot;
  }
  if (!value.isList() || !any_tensor(value.toListRef())) return value;
  SlotList slots;
  auto list = value.toList();
  for (size_t i = 0; i < list.size(); ++i) {
    const c10::IValue element = list.get(i);
    slots.emplace_back();
    if (!element.isTensor() || !element.toTensor().defined()) continue;
    at::Tensor tensor = element.toTensor();
    slots.back() = argument(tensor, entry, is_written);
    list.set(i, tensor);
  }
  return slots;
}

void Recorder::record(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack) {
  const auto& schema = handle.schema();
  Entry entry{handle, {}, {}, {}, {}, 0};
  const bool reshapes = only_reshapes(schema.name());
  set_argument(handle, stack, "device", c10::Device(c10::kMeta));
  set_argument(handle, stack, "pin_memory", c10::IValue());
  set_argument(handle, stack, "generator", c10::IValue());
  for (size_t i = 0; i < stack.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    entry.arguments.push_back(value_of(stack[i], entry, alias && alias->isWrite() && !reshapes));
  }
  if (handle.hasTag(at::Tag::nondeterministic_seeded)) entry.draw = ++draws_;
  call_without_memory(entry, stack);
  if (cannot_be_repeated(schema.name())) {
    for (const int number : entry.writes) {
      tape_->storages[static_cast<size_t>(number)].refused = schema.name();
    }
    for_each_tensor(stack, [&](const at::Tensor& tensor) {
      if (!find(tensor) && is_meta(tensor)) {
        tape_->storages[static_cast<size_t>(add(tensor, false))].refused = schema.name();
      }
    });
  }
  note_results(std::move(entry), stack);
}

/// Where libtorch has no kernel that only tells shapes, the elements are computed to learn them.
void Recorder::call_without_memory(const Entry& entry, std::vector<c10::IValue>& stack) {
  const auto arguments = stack;
  try {
    call_below(entry.handle, stack);
    return;
  } catch (const c10::NotImplementedError&) {
    stack = arguments;
  }
  for (auto& value : stack) give_elements(value);
  set_argument(entry.handle, stack, "device", c10::Device(c10::kCPU));
  const auto real = stack;
  {
    const KeptGenerator seeded(draw_key(*tape_, entry));
    call_below(entry.handle, stack);
  }
  for (auto& result : stack) {
    if (!result.isTensor()) continue;
    const at::Tensor& tensor = result.toTensor();
    result =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
    for (size_t i = 0; i < real.size(); ++i) {
      if (!real[i].isTensor() || !tensor.is_alias_of(real[i].toTensor())) continue;
      if (!tensor.is_same(real[i].toTensor())) {
        throw Error(base::unsupported("deferred: " + entry.name() +
                                      " has no form that works without memory; build that part of "
                                      "the module outside of hanji::deferred"));
      }
      result = arguments[i];
    }
  }
}

/// The elements that a tensor of the tape has by now, in memory.
void Recorder::give_elements(c10::IValue& value) {
  const int now = static_cast<int>(tape_->entries.size());
  const auto real = [&](const at::Tensor& tensor) {
    const Slot slot = slot_of(tensor);
    return on_storage(slot, replay_whole(*tape_, slot.storage, now));
  };
  if (value.isTensor() && find(value.toTensor())) {
    value = real(value.toTensor());
  } else if (value.isList() && any_tensor(value.toListRef())) {
    auto list = value.toList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      const c10::IValue element = list.get(i);
      if (element.isTensor() && find(element.toTensor())) list.set(i, real(element.toTensor()));
    }
    value = list;
  }
}

/// Keeps the entry if it wrote to storages or made some.
void Recorder::note_results(Entry entry, const std::vector<c10::IValue>& stack) {
  for_each_tensor(stack, [&](const at::Tensor& result) {
    if (!is_meta(result) || find(result)) {
      entry.results.emplace_back();
      return;
    }
    add(result, false);
    entry.results.emplace_back(slot_of(result));
    entry.writes.push_back(entry.results.back()->storage);
  });
  if (entry.writes.empty()) return;
  for (const int number : entry.writes) {
    auto& entries = tape_->storages[static_cast<size_t>(number)].entries;
    const int own = static_cast<int>(tape_->entries.size());
    if (entries.empty() || entries.back() != own) entries.push_back(own);
  }
  tape_->entries.push_back(std::move(entry));
}

/// Gives the operation the elements that its arguments will have.
void Recorder::read(const c10::OperatorHandle& handle, std::vector<c10::IValue>& stack) {
  for (auto& value : stack) give_elements(value);
  call_below(handle, stack);
}

Slot Recorder::place(const at::Tensor& tensor) {
  take_memory(tensor);
  if (!find(tensor)) become(tensor, stand_in(tensor));
  return slot_of(tensor);
}

}  // namespace hanji::lens
