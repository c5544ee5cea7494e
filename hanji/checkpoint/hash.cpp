#include "hanji/checkpoint/hash.h"

#include <algorithm>
#include <vector>

namespace hanji::checkpoint {
namespace {

void add_sorted(StateHash& hash, std::span<const SavedTensor> tensors) {
  std::vector<const SavedTensor*> sorted;
  for (const SavedTensor& tensor : tensors) sorted.push_back(&tensor);
  std::ranges::sort(
      sorted, {}, [](const SavedTensor* tensor) -> const auto& { return tensor->name; });
  hash.begin_group(sorted.size());
  for (const SavedTensor* tensor : sorted) {
    hash.begin_tensor(tensor->name, tensor->dtype, tensor->shape);
    for_each_run(*tensor, {0, tensor->num_elements()}, [&](int64_t, auto run) { hash.add(run); });
  }
}

}  // namespace

void StateHash::add_number(uint64_t value) { hash_.update(std::as_bytes(std::span(&value, 1))); }

void StateHash::add_text(std::string_view text) {
  add_number(text.size());
  hash_.update(text);
}

void StateHash::begin_group(size_t num_tensors) { add_number(num_tensors); }

void StateHash::begin_tensor(std::string_view name, DType dtype, std::span<const int64_t> shape) {
  add_text(name);
  add_text(base::name_of(dtype));
  add_number(shape.size());
  for (const int64_t length : shape) add_number(static_cast<uint64_t>(length));
}

StateHashes state_hashes(std::span<const SavedTensor> parameters,
                         std::span<const SavedTensor> optimizer) {
  StateHash hash;
  add_sorted(hash, parameters);
  StateHash of_parameters = hash;
  of_parameters.begin_group(0);
  add_sorted(hash, optimizer);
  return {of_parameters.hex(), hash.hex()};
}

std::string state_hash(std::span<const SavedTensor> parameters,
                       std::span<const SavedTensor> optimizer) {
  return state_hashes(parameters, optimizer).state;
}

std::string state_hash(std::span<const NamedTensor> parameters,
                       std::span<const NamedTensor> optimizer) {
  return state_hash(in_one_run(parameters), in_one_run(optimizer));
}

}  // namespace hanji::checkpoint
