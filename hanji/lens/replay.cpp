#include "hanji/lens/internal/replay.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <unordered_map>

#include "hanji/base/status.h"
#include "hanji/lens/generator_state.h"
#include "hanji/lens/internal/arguments.h"
#include "hanji/lens/internal/random_values.h"
#include "hanji/lens/operation.h"

namespace hanji::lens {
namespace {

class WholeReplay {
 public:
  WholeReplay(const Tape& tape, int storage, int end) : tape_(tape) {
    const c10::NoGradGuard no_grad;
    for (const int entry : tape.needed(storage, end)) {
      run(tape.entries[static_cast<size_t>(entry)]);
    }
  }

  c10::Storage storage(int number) {
    if (const auto place = storages_.find(number); place != storages_.end()) return place->second;
    const Storage& recorded = tape_.storage(number);
    const auto bytes = recorded.literal.defined() ? recorded.literal.clone()
                                                  : at::zeros({recorded.bytes}, at::kByte);
    return storages_.emplace(number, bytes.storage()).first->second;
  }

 private:
  at::Tensor tensor(const Slot& slot) { return on_storage(slot, storage(slot.storage)); }

  void refuse(const Entry& entry) const {
    for (const auto* storages : {&entry.reads, &entry.writes}) {
      for (const int number : *storages) {
        if (tape_.storage(number).refused.empty()) continue;
        throw Error(base::unsupported("deferred: " + tape_.storage(number).refused +
                                      " cannot be repeated when its tensor gets memory; build "
                                      "that part of the module outside of hanji::deferred"));
      }
    }
  }

  /// In blocks, for values are drawn in double precision.
  void draw(const Entry& entry, const Distribution& distribution, const Slot& slot) {
    auto target = tensor(slot);
    auto values = at::empty({slot.numel()}, target.options());
    for (int64_t begin = 0; begin < slot.numel(); begin += kBlock) {
      const layout::Range range{begin, std::min(begin + kBlock, slot.numel())};
      values.slice(0, range.begin, range.end)
          .copy_(random_values(distribution, draw_key(tape_, entry), range, slot.dtype));
    }
    target.copy_(values.view(slot.sizes));
  }

  std::vector<c10::IValue> arguments(const Entry& entry) {
    std::vector<c10::IValue> all;
    for (const Value& value : entry.arguments) {
      if (const auto* slot = std::get_if<Slot>(&value)) {
        all.emplace_back(tensor(*slot));
      } else if (const auto* plain = std::get_if<c10::IValue>(&value)) {
        all.push_back(*plain);
      } else {
        all.push_back(list(std::get<SlotList>(value), entry, all.size()));
      }
    }
    set_argument(entry.handle, all, "device", c10::Device(c10::kCPU));
    return all;
  }

  /// Of tensors, or of tensors that may be absent.
  c10::IValue list(const SlotList& slots, const Entry& entry, size_t position) {
    const auto& type = entry.handle.schema().arguments()[position].type();
    if (type->isSubtypeOf(*c10::ListType::ofOptionalTensors()) &&
        !type->isSubtypeOf(*c10::ListType::ofTensors())) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const auto& slot : slots) {
        tensors.push_back(slot ? std::optional<at::Tensor>(tensor(*slot)) : std::nullopt);
      }
      return tensors;
    }
    c10::List<at::Tensor> tensors;
    for (const auto& slot : slots) tensors.push_back(slot ? tensor(*slot) : at::Tensor());
    return tensors;
  }

  void run(const Entry& entry) {
    refuse(entry);
    const Slot* slot = nullptr;
    if (!entry.results.empty() && entry.results[0]) slot = &*entry.results[0];
    if (!slot && !entry.arguments.empty()) slot = std::get_if<Slot>(&entry.arguments[0]);
    const auto distribution = entry.draw ? distribution_of(entry) : std::nullopt;
    if (slot && distribution && !c10::isComplexType(slot->dtype)) {
      return draw(entry, *distribution, *slot);
    }
    auto stack = arguments(entry);
    if (!entry.draw) {
      call_below(entry.handle, stack);
    } else {
      const KeptGenerator seeded(draw_key(tape_, entry));
      set_argument(entry.handle, stack, "generator", c10::IValue());
      call_below(entry.handle, stack);
    }
    keep(entry, stack);
  }

  /// Moves results into storages that look as the recorded ones do.
  void keep(const Entry& entry, const std::vector<c10::IValue>& stack) {
    size_t i = 0;
    for_each_tensor(stack, [&](const at::Tensor& result) {
      const auto& made = entry.results[i++];
      if (!made) return;
      const bool same = result.strides() == at::IntArrayRef(made->strides) &&
                        result.storage_offset() == made->offset;
      if (same && storages_.try_emplace(made->storage, result.storage()).second) return;
      tensor(*made).copy_(result);
    });
  }

  const Tape& tape_;
  std::unordered_map<int, c10::Storage> storages_;
};

}  // namespace

at::Tensor on_storage(const Slot& slot, const c10::Storage& storage) {
  const c10::NoGradGuard no_grad;
  auto tensor = at::empty({0}, at::TensorOptions(slot.dtype).device(storage.device()));
  tensor.set_(storage, slot.offset, slot.sizes, slot.strides);
  return tensor;
}

c10::Storage replay_whole(const Tape& tape, int storage, int end) {
  return WholeReplay(tape, storage, end).storage(storage);
}

}  // namespace hanji::lens
