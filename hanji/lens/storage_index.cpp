#include "hanji/lens/storage_index.h"

#include <algorithm>

namespace hanji::lens {
namespace {

int64_t first_byte(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
}

/// From its first element to behind its last one.
int64_t span_bytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return (last + 1) * static_cast<int64_t>(tensor.itemsize());
}

}  // namespace

StorageIndex::StorageIndex(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  refresh();
}

void StorageIndex::refresh() {
  pieces_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor& tensor = tensors_[i];
    if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) continue;
    const c10::Storage& storage = tensor.storage();
    auto& pieces = pieces_.try_emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl())
                       .first->second.pieces;
    const int64_t begin = first_byte(tensor);
    pieces.push_back({begin, begin + span_bytes(tensor), static_cast<int>(i)});
  }
  for (auto& [storage, own] : pieces_) {
    std::stable_sort(own.pieces.begin(), own.pieces.end(),
                     [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  }
}

int StorageIndex::find(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage()) return -1;
  const auto place = pieces_.find(tensor.storage().unsafeGetStorageImpl());
  if (place == pieces_.end()) return -1;
  const auto& pieces = place->second.pieces;
  const int64_t byte = first_byte(tensor);
  // The last begin that is not behind it; of tied tensors the first.
  auto after = std::upper_bound(pieces.begin(), pieces.end(), byte,
                                [](int64_t at, const Piece& piece) { return at < piece.begin; });
  if (after == pieces.begin()) return -1;
  const auto found =
      std::lower_bound(pieces.begin(), after, std::prev(after)->begin,
                       [](const Piece& piece, int64_t begin) { return piece.begin < begin; });
  return byte < found->end ? found->position : -1;
}

}  // namespace hanji::lens
