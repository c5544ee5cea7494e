#include "hanji/checkpoint/hash.h"

#include <algorithm>
#include <vector>

#include "hanji/base/checksum.h"

namespace hanji::checkpoint {
namespace {

void add_number(base::Sha256& hash, uint64_t value) {
  hash.update(std::as_bytes(std::span(&value, 1)));
}

void add_text(base::Sha256& hash, std::string_view text) {
  add_number(hash, text.size());
  hash.update(text);
}

void add_tensor(base::Sha256& hash, const NamedTensor& tensor) {
  add_text(hash, tensor.name);
  add_text(hash, base::name_of(tensor.dtype));
  add_number(hash, tensor.shape.size());
  for (const int64_t length : tensor.shape) add_number(hash, static_cast<uint64_t>(length));
  hash.update(tensor.bytes);
}

void add_group(base::Sha256& hash, std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> sorted;
  for (const NamedTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(),
            [](const NamedTensor* a, const NamedTensor* b) { return a->name < b->name; });
  add_number(hash, sorted.size());
  for (const NamedTensor* tensor : sorted) add_tensor(hash, *tensor);
}

}  // namespace

std::string state_hash(std::span<const NamedTensor> parameters,
                       std::span<const NamedTensor> optimizer) {
  base::Sha256 hash;
  add_group(hash, parameters);
  add_group(hash, optimizer);
  return hash.hex();
}

}  // namespace hanji::checkpoint
