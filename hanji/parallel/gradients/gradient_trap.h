#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "hanji/parallel/named_parameter.h"

namespace hanji::parallel {

/// What stands in `.grad` of a whole parameter whose gradient has gone to its shards: a tensor
/// without memory that throws, naming the parameter, when its elements are read or written. So an
/// optimizer that was made before sharding, or torch's clip_grad_norm_, does not find nothing to do.
///
/// It goes before the next backward puts a gradient there, and by zero_grad().
class GradientTrap {
 public:
  /// `strategy`: the function whose handle has the shards.
  GradientTrap(const NamedParameter& parameter, const std::string& strategy);
  ~GradientTrap();
  GradientTrap(const GradientTrap&) = delete;
  GradientTrap& operator=(const GradientTrap&) = delete;

  /// Takes the place of the gradient.
  void set() const { parameter_.mutable_grad() = tensor_; }
  /// `.grad` is undefined again, unless it is somebody else's.
  void clear() const;

 private:
  at::Tensor parameter_;
  at::Tensor tensor_;
  unsigned hook_;  ///< The parameter's number for it.
};

}  // namespace hanji::parallel
