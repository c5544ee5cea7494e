#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hanji::lens {

/// Which of some tensors, a module's parameters for example, another tensor lies in: it is one of
/// them, or a view of one such as weight.t(), or shares its piece of a flat buffer.
///
/// Cost    find(): one look into a hash table, and where several share a storage a binary search.
/// Thread  any number may read at once.
class StorageIndex {
 public:
  StorageIndex() = default;
  /// Tensors without memory of their own (undefined, sparse, of no elements) are never found.
  explicit StorageIndex(std::vector<at::Tensor> tensors);

  /// The position of the tensor that holds the first element of `tensor`, or -1. Of tied ones the
  /// first.
  int find(const at::Tensor& tensor) const;

  const at::Tensor& operator[](int position) const {
    return tensors_[static_cast<size_t>(position)];
  }
  int size() const { return static_cast<int>(tensors_.size()); }

  /// Looks again where the tensors lie: after they were moved to other memory.
  void refresh();

 private:
  struct Piece {
    int64_t begin, end;  // bytes within the storage
    int position;
  };
  struct Pieces {
    explicit Pieces(c10::weak_intrusive_ptr<c10::StorageImpl> of) : storage(std::move(of)) {}
    // Keeps the address from being given to another storage; its memory may go.
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<Piece> pieces;  // by begin
  };

  std::vector<at::Tensor> tensors_;
  std::unordered_map<const c10::StorageImpl*, Pieces> pieces_;
};

}  // namespace hanji::lens
