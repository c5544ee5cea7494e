#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// Whether the operation of this name gives a tensor other memory, as torch::load() and Tensor::set_data() do,
/// and reads no element.
bool replaces_memory(const std::string& operation);

/// Tensors whose memory a handle has chosen. Notices those that have other memory since: torch::load(),
/// vector_to_parameters(), Module::to() and Tensor::set_data() change the memory of a tensor that keeps
/// its identity, and what the handle then reads and writes is not what the module computes with.
///
/// Cost    to look: a few comparisons per tensor, and no allocation.
class PlacedTensors {
 public:
  /// The next tensor, contiguous in its memory of now.
  void add(const NamedParameter& tensor);
  size_t size() const { return places_.size(); }

  /// The storage that the handle has chosen for tensor i, whatever it has now.
  c10::StorageImpl& storage(size_t i) const { return *places_[i].storage.unsafeGetStorageImpl(); }
  /// Chooses another storage, of which the tensor has all, and a dtype; the tensor then has these. As
  /// Tensor::set_data() it forgets where gradients of another dtype went.
  /// Result  the storage before.
  c10::Storage move(size_t i, c10::Storage storage, c10::ScalarType dtype);
  /// The tensor has the chosen memory again, whatever it had.
  void put_back(size_t i) const;

  bool is_replaced(size_t i) const;
  bool any_replaced() const;
  /// "parameter a is Double [3, 4] on cpu now and was Float [3, 4] on cpu; parameter b ..." of those whose
  /// values cannot be copied to the chosen memory, for another dtype, sizes or device, with `what` before
  /// each name; empty: there are none.
  std::string misfits(const char* what = "parameter ") const;
  /// "a, b and 3 more": all that are replaced.
  std::string replaced() const;

 private:
  struct Place {
    NamedParameter of;
    c10::Storage storage;
    int64_t offset;
    c10::ScalarType dtype;
    c10::Device device;
    std::vector<int64_t> sizes;
  };
  static bool fits(const Place& place);

  std::vector<Place> places_;
};

}  // namespace hanji::parallel
