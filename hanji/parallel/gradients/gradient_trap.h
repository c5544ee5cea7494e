#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// The `.grad` of an unsharded parameter whose gradient was reduced into its shards: a tensor without
/// memory that throws, naming the parameter, when its elements are read or written. Without it, an
/// optimizer that was made before sharding, or torch's clip_grad_norm_, would silently do nothing.
///
/// The next backward and zero_grad() remove it.
class GradientTrap {
 public:
  /// `strategy`: the function whose handle has the shards.
  GradientTrap(const NamedParameter& parameter, const std::string& strategy);
  ~GradientTrap();
  GradientTrap(const GradientTrap&) = delete;
  GradientTrap& operator=(const GradientTrap&) = delete;

  /// Replaces the gradient.
  void set() const { parameter_.mutable_grad() = tensor_; }
  /// Makes `.grad` undefined, unless another object has set it.
  void clear() const;

 private:
  at::Tensor parameter_;
  at::Tensor tensor_;
  unsigned hook_;  ///< The number of the hook on the parameter.
};

}  // namespace hanji::parallel
