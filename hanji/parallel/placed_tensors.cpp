#include "hanji/parallel/placed_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace hanji::parallel {
namespace {

constexpr size_t kMaxNamed = 8;

std::string form_of(c10::ScalarType dtype, at::IntArrayRef sizes, const c10::Device& device) {
  return fmt::format("{} [{}] on {}", c10::toString(dtype), fmt::join(sizes, ", "), device.str());
}

std::string join_some(const std::vector<std::string>& found, const char* between) {
  const size_t told = std::min(found.size(), kMaxNamed);
  std::string text = fmt::format("{}", fmt::join(found.begin(), found.begin() + told, between));
  if (found.size() > told) text += fmt::format(" and {} more", found.size() - told);
  return text;
}

}  // namespace

bool replaces_memory(const std::string& operation) {
  return operation == "aten::set_" || operation == "aten::_has_compatible_shallow_copy_type";
}

void PlacedTensors::add(const NamedParameter& of) {
  const at::Tensor& tensor = of.tensor;
  places_.push_back({of, tensor.storage(), tensor.storage_offset(), tensor.scalar_type(),
                     tensor.device(), tensor.sizes().vec()});
}

c10::Storage PlacedTensors::move(size_t i, c10::Storage storage, c10::ScalarType dtype) {
  Place& place = places_[i];
  place.offset = 0;
  place.dtype = dtype;
  c10::Storage before = std::exchange(place.storage, std::move(storage));
  put_back(i);
  return before;
}

void PlacedTensors::put_back(size_t i) const {
  const Place& place = places_[i];
  const at::Tensor& tensor = place.of.tensor;
  const bool converts = tensor.scalar_type() != place.dtype;
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_and_dtype(place.storage, c10::scalarTypeToTypeMeta(place.dtype));
  impl->set_sizes_contiguous(place.sizes);
  impl->set_storage_offset(place.offset);
  auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (!converts || meta == nullptr) return;
  const std::lock_guard<std::mutex> lock(meta->mutex_);
  meta->grad_accumulator_.reset();
}

bool PlacedTensors::is_replaced(size_t i) const {
  const Place& place = places_[i];
  const at::Tensor& tensor = place.of.tensor;
  return !tensor.has_storage() || tensor.storage().unsafeGetStorageImpl() != &storage(i) ||
         tensor.storage_offset() != place.offset || tensor.scalar_type() != place.dtype ||
         tensor.sizes() != place.sizes || !tensor.is_contiguous();
}

bool PlacedTensors::any_replaced() const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (is_replaced(i)) return true;
  }
  return false;
}

bool PlacedTensors::fits(const Place& place) {
  const at::Tensor& tensor = place.of.tensor;
  return tensor.has_storage() && tensor.scalar_type() == place.dtype &&
         tensor.sizes() == place.sizes && tensor.device() == place.device;
}

std::string PlacedTensors::misfits(const char* what) const {
  std::vector<std::string> found;
  for (size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    if (!is_replaced(i) || fits(place)) continue;
    const at::Tensor& now = place.of.tensor;
    found.push_back(fmt::format("{}{} is {} now and was {}", what, place.of.name,
                                form_of(now.scalar_type(), now.sizes(), now.device()),
                                form_of(place.dtype, place.sizes, place.device)));
  }
  return join_some(found, "; ");
}

std::string PlacedTensors::replaced() const {
  std::vector<std::string> found;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (is_replaced(i)) found.push_back(places_[i].of.name);
  }
  return join_some(found, ", ");
}

}  // namespace hanji::parallel
