#include "hanji/parallel/parameter_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "hanji/base/status.h"
#include "hanji/parallel/gradients/gradient_hook.h"

namespace hanji::parallel {
namespace {

using torch::nn::Module;
using ModuleTensorsByName = torch::OrderedDict<std::string, at::Tensor>;
using ModuleChildren = torch::OrderedDict<std::string, std::shared_ptr<Module>>;

constexpr size_t kUnknown = -1;

/// What module.named_parameters() and its like would copy in every step, names and all.
struct OpenedModule : Module {
  static constexpr ModuleTensorsByName Module::*kParameters = &OpenedModule::parameters_;
};
ModuleTensorsByName Module::*buffers_member();
ModuleChildren Module::*children_member();
/// Its explicit instantiation may name what is private.
template <ModuleTensorsByName Module::*kBuffers, ModuleChildren Module::*kChildren>
struct OpenedMembers {
  friend ModuleTensorsByName Module::*buffers_member() { return kBuffers; }
  friend ModuleChildren Module::*children_member() { return kChildren; }
};
template struct OpenedMembers<&Module::buffers_, &Module::children_>;

std::string kind_of(at::ScalarType dtype, at::IntArrayRef sizes, c10::Device device) {
  return fmt::format("{} [{}] on {}", c10::toString(dtype), fmt::join(sizes, " "), device.str());
}

}  // namespace

ParameterWatch::ParameterWatch(const Module& module, std::string caller, Types types)
    : module_(module), caller_(std::move(caller)), types_(types) {
  for (auto& [name, tensor] : distinct_parameters(module)) {
    known_.push_back({tensor, tensor.requires_grad(), tensor.scalar_type(), tensor.device(),
                      tensor.sizes().vec()});
    if (!tensor.requires_grad()) frozen_.push_back({name, tensor});
  }
  record_walk(module);
}

const ParameterWatch::Known* ParameterWatch::find(const at::Tensor& tensor) const {
  const auto found = std::ranges::find_if(
      known_, [&](const Known& known) { return known.tensor.is_same(tensor); });
  return found == known_.end() ? nullptr : &*found;
}

bool ParameterWatch::has_other_type(const Known& known) const {
  if (types_ == Types::kMayChange) return false;
  return known.tensor.scalar_type() != known.dtype || known.tensor.device() != known.device ||
         known.tensor.sizes() != known.sizes;
}

bool ParameterWatch::is_as_before(const Known& known) const {
  return (known.learned || !known.tensor.requires_grad()) && !has_other_type(known);
}

bool ParameterWatch::walk_is_as_before(const Module& module, size_t& next) const {
  for (const auto& item : module.*OpenedModule::kParameters) {
    if (next == walk_.size()) return false;
    const Entry& entry = walk_[next++];
    if (entry.tensor != item.value().unsafeGetTensorImpl()) return false;
    if (!item.value().defined()) continue;
    if (entry.known == kUnknown || !is_as_before(known_[entry.known])) return false;
  }
  for (const auto& item : module.*buffers_member()) {
    if (item.value().requires_grad() && item.value().is_leaf()) return false;
  }
  return std::ranges::all_of(module.*children_member(), [&](const auto& child) {
    return walk_is_as_before(*child.value(), next);
  });
}

void ParameterWatch::record_walk(const Module& module) {
  for (const auto& item : module.*OpenedModule::kParameters) {
    const Known* known = find(item.value());
    walk_.push_back({item.value().unsafeGetTensorImpl(),
                     known == nullptr ? kUnknown : static_cast<size_t>(known - known_.data())});
  }
  for (const auto& child : module.*children_member()) record_walk(*child.value());
}

bool ParameterWatch::has_mistakes() {
  size_t next = 0;
  if (walk_is_as_before(module_, next) && next == walk_.size()) return false;
  if (!mistakes().all().empty()) return true;
  walk_.clear();
  record_walk(module_);
  return false;
}

Mistakes ParameterWatch::mistakes() const {
  const std::string again =
      fmt::format(" before {0}(), or end this handle and call {0}() again, on every rank", caller_);
  Mistakes found;
  const auto add = [&](const std::string& kind, const std::string& name, const std::string& why) {
    found.add(kind, name,
              base::invalid_argument(fmt::format("{}: parameter {} {}", caller_, name, why)));
  };
  for (const auto& item : module_.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined()) continue;
    const Known* known = find(tensor);
    const bool is_taken = known == nullptr || !known->learned;
    if (is_taken && !strategy_of(tensor).empty()) continue;  // by another handle
    if (known == nullptr) {
      add("new", item.key(),
          "is new in the module since that was wrapped, so it has no values of rank 0 and nothing "
          "sums its gradient; register or replace it" +
              again);
    } else if (!known->learned && tensor.requires_grad()) {
      add("unfrozen", item.key(),
          "required no gradient when the module was wrapped and does now, so nothing sums its "
          "gradient; let it require one" +
              again);
    } else if (has_other_type(*known)) {
      add("type", item.key(),
          fmt::format("is {} and was {} when the module was wrapped, as are the sums of gradients; "
                      "convert the module{}",
                      kind_of(tensor.scalar_type(), tensor.sizes(), tensor.device()),
                      kind_of(known->dtype, known->sizes, known->device), again));
    }
  }
  for (const NamedParameter& buffer : buffers_of(module_)) found.add_if_learning(buffer, caller_);
  return found;
}

void ParameterWatch::refuse_mistakes() {
  if (has_mistakes()) mistakes().refuse();
}

}  // namespace hanji::parallel
