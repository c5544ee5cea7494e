#include "hanji/lens/deferred.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hanji/base/random.h"
#include "hanji/base/status.h"
#include "hanji/lens/internal/recorder.h"
#include "hanji/lens/internal/replay.h"
#include "hanji/lens/observer.h"

namespace hanji::lens {

struct InitialValues::State {
  struct Place {
    std::string name;
    at::Tensor tensor;
    Slot slot;
  };
  std::shared_ptr<const Tape> tape;
  std::vector<Place> places;

  const Place& operator[](int tensor) const { return places.at(static_cast<size_t>(tensor)); }
  int end() const { return static_cast<int>(tape->entries.size()); }
  bool is_whole(const Slot& slot) const { return slot.is_whole(tape->storage(slot.storage).bytes); }
};

namespace {

using State = InitialValues::State;

/// On the CPU: a whole storage with its values, by blocks where that is possible.
c10::Storage storage_with_values(const State& state, int storage) {
  const BlockProgram program(*state.tape, storage);
  if (!program.ok()) return replay_whole(*state.tape, storage, state.end());
  auto values = at::empty({program.numel()}, program.dtype());
  program.write({0, program.numel()}, values);
  return values.storage();
}

[[noreturn]] void refuse(const State::Place& place, const std::string& why) {
  throw Error(base::invalid_argument("deferred: '" + place.name + "': " + why));
}

void check(const State::Place& place, layout::Range range, const at::Tensor& out) {
  const int64_t count = place.slot.numel();
  const auto text = "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
  if (range.begin < 0 || range.end < range.begin || range.end > count) {
    refuse(place, "elements " + text + " of " + std::to_string(count) + " are asked for");
  }
  if (out.dim() != 1 || out.numel() != range.size()) {
    refuse(place, "elements " + text +
                      " need a tensor of one dimension and as many elements, not " +
                      std::to_string(out.numel()) + " in " + std::to_string(out.dim()));
  }
}

}  // namespace

int InitialValues::size() const { return static_cast<int>(state_->places.size()); }

const std::string& InitialValues::name(int tensor) const { return (*state_)[tensor].name; }

const at::Tensor& InitialValues::tensor(int tensor) const { return (*state_)[tensor].tensor; }

int InitialValues::find(const at::Tensor& tensor) const {
  const auto& places = state_->places;
  const auto place = std::find_if(places.begin(), places.end(),
                                  [&](const auto& own) { return own.tensor.is_same(tensor); });
  return place == places.end() ? -1 : static_cast<int>(place - places.begin());
}

uint64_t InitialValues::seed() const { return state_->tape->seed; }

uint64_t InitialValues::fingerprint(int tensor) const {
  return base::mix(seed(), state_->tape->fingerprint((*state_)[tensor].slot));
}

std::string InitialValues::refused(int tensor) const {
  return state_->tape->refused((*state_)[tensor].slot.storage);
}

void InitialValues::write(int tensor, layout::Range range, const at::Tensor& out) const {
  const Pause pause;
  const at::NoGradGuard no_grad;
  const auto& place = (*state_)[tensor];
  check(place, range, out);
  if (range.empty()) return;
  const BlockProgram program(*state_->tape, place.slot.storage);
  if (!program.ok() || !state_->is_whole(place.slot)) {
    const auto storage = storage_with_values(*state_, place.slot.storage);
    out.copy_(on_storage(place.slot, storage).reshape({-1}).slice(0, range.begin, range.end));
    return;
  }
  const bool direct = out.is_cpu() && out.is_contiguous() && out.scalar_type() == program.dtype();
  const auto values = direct ? out : at::empty({range.size()}, program.dtype());
  program.write(range, values);
  if (!direct) out.copy_(values);
}

void InitialValues::write_flat(const layout::FlatLayout& layout, layout::Range range,
                               const at::Tensor& out) const {
  const at::NoGradGuard no_grad;
  out.zero_();
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    const int64_t begin = std::max(range.begin, layout.offsets[i]);
    const int64_t end = std::min(range.end, layout.offsets[i] + layout.sizes[i]);
    if (begin >= end) continue;
    write(static_cast<int>(i), {begin - layout.offsets[i], end - layout.offsets[i]},
          out.slice(0, begin - range.begin, end - range.begin));
  }
}

void InitialValues::materialise(c10::Device device) const {
  const Pause pause;
  const at::NoGradGuard no_grad;
  std::unordered_map<int, c10::Storage> storages;  // tensors that share one go on sharing it
  for (const auto& place : state_->places) {
    if (!place.tensor.is_meta()) continue;
    auto known = storages.find(place.slot.storage);
    if (known == storages.end()) {
      auto storage = storage_with_values(*state_, place.slot.storage);
      if (!device.is_cpu()) {
        const auto bytes = static_cast<int64_t>(storage.nbytes());
        storage = on_storage({0, at::kByte, {bytes}, {1}, 0}, storage).to(device).storage();
      }
      known = storages.emplace(place.slot.storage, std::move(storage)).first;
    }
    const auto real = on_storage(place.slot, known->second);
    // Every handle shares the implementation, hidden ones too (an LSTM's flat_weights).
    place.tensor.unsafeGetTensorImpl()->shallow_copy_from(real.getIntrusivePtr());
  }
}

struct Construction::Impl {
  explicit Impl(uint64_t seed) : recorder(seed), scope(std::in_place, recorder) {}
  Recorder recorder;
  std::optional<InterceptorScope> scope;
};

Construction::Construction(uint64_t seed) : impl_(std::make_unique<Impl>(seed)) {}

Construction::~Construction() = default;

InitialValues Construction::finish(const torch::nn::Module& module) {
  impl_->scope.reset();
  const Pause pause;
  auto state = std::make_shared<InitialValues::State>();
  std::unordered_set<const void*> met;
  const auto keep = [&](const auto& tensors) {
    for (const auto& item : tensors) {
      const at::Tensor& tensor = item.value();
      if (!tensor.defined() || !tensor.has_storage()) continue;
      if (!met.insert(tensor.unsafeGetTensorImpl()).second) continue;
      state->places.push_back({item.key(), tensor, impl_->recorder.place(tensor)});
    }
  };
  keep(module.named_parameters());
  keep(module.named_buffers());
  state->tape = impl_->recorder.tape();
  return InitialValues(std::move(state));
}

}  // namespace hanji::lens
