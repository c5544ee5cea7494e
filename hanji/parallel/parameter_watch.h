#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "hanji/parallel/agreement.h"
#include "hanji/parallel/named_parameter.h"

namespace torch::nn {
class Module;
}

namespace hanji::parallel {

/// Finds what a strategy would pass over in silence after it took a module's parameters: one that
/// required no gradient then and does now, one that is new in the module, a buffer that requires a
/// gradient, and, where gradients are summed in the dtype that parameters had, a parameter that has
/// another dtype, shape or device.
///
/// Parameters that another strategy trains are left to it. One that no longer requires a gradient, or
/// is no longer in the module, is no mistake: it is one that backward() does not reach.
///
/// Thread  one at a time. The module must outlive it.
class ParameterWatch {
 public:
  enum class Types : bool { kMayChange, kStay };

  /// `caller`: the function that made the handle, named in mistakes.
  ParameterWatch(const torch::nn::Module& module, std::string caller, Types types);

  /// Whether mistakes() finds any.
  /// Cost    a few comparisons per parameter; no allocation while nothing changes.
  bool has_mistakes();
  /// All of them, by name.
  Mistakes mistakes() const;
  /// Throws them, as one Error(kInvalidArgument); on this rank only.
  void refuse_mistakes();

  const torch::nn::Module& module() const { return module_; }
  /// What required no gradient when this was made.
  const std::vector<NamedParameter>& frozen() const { return frozen_; }

 private:
  struct Known {
    at::Tensor tensor;
    bool learned;
    at::ScalarType dtype;
    c10::Device device;
    std::vector<int64_t> sizes;
  };
  /// A parameter on the walk through the module.
  struct Entry {
    const c10::TensorImpl* tensor;
    size_t known;  ///< Index in known_; kUnknown: of another strategy, or undefined.
  };
  const Known* find(const at::Tensor& tensor) const;
  bool has_other_type(const Known& known) const;
  bool is_as_before(const Known& known) const;
  bool walk_is_as_before(const torch::nn::Module& module, size_t& next) const;
  void record_walk(const torch::nn::Module& module);

  const torch::nn::Module& module_;
  std::string caller_;
  Types types_;
  std::vector<Known> known_;
  std::vector<Entry> walk_;
  std::vector<NamedParameter> frozen_;
};

}  // namespace hanji::parallel
