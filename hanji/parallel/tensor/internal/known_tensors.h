#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <unordered_map>

namespace hanji::parallel::tensor {

/// What a tensor of a cut module is.
enum class TensorRole : uint8_t {
  kWeight,
  kTransposed,  ///< weight.t()
  kBias,        ///< Of a column, and cut as it is.
  kPart,        ///< Another view of a cut parameter.
  kFeatures,    ///< Computed from the output of a column, and cut as it is.
};

/// Notes about tensors by identity: those of a parameter survive a change of its memory.
///
/// Cost    a look into a hash table; notes about tensors that are gone are dropped now and then.
class KnownTensors {
 public:
  struct Note {
    TensorRole role = TensorRole::kFeatures;
    size_t weight = 0;  ///< Number of the cut weight.
  };

  /// Null: nothing is known.
  const Note* find(const at::Tensor& tensor) const {
    const auto found = entries_.find(tensor.unsafeGetTensorImpl());
    if (found == entries_.end() || found->second.tensor.expired()) return nullptr;
    return &found->second.note;
  }

  void add(const at::Tensor& tensor, const Note& note) {
    if (entries_.size() >= limit_) {
      std::erase_if(entries_, [](const auto& entry) { return entry.second.tensor.expired(); });
      limit_ = 2 * entries_.size() + kMinEntries;
    }
    // A weak pointer keeps the address from being given to another tensor.
    entries_.insert_or_assign(tensor.unsafeGetTensorImpl(),
                              Entry{Weak(tensor.getIntrusivePtr()), note});
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  static constexpr size_t kMinEntries = 256;
  struct Entry {
    Weak tensor;
    Note note;
  };

  std::unordered_map<const c10::TensorImpl*, Entry> entries_;
  size_t limit_ = kMinEntries;
};

}  // namespace hanji::parallel::tensor
