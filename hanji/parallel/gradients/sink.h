#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace hanji::parallel {

class Gradients;

/// Reduces the gradients of units over all ranks: by an all_reduce, a reduce_scatter, or a push to
/// servers. It does not depend on hooks, grains or accumulation.
///
/// Units are numbered in the order in which they begin, the same on every rank.
class GradientSink {
 public:
  virtual ~GradientSink() = default;

  /// Memory for the unsharded gradients of a unit: [buffers, elements], uninitialized; one buffer, or
  /// with stable bits as many as the fold needs. The same tensor until the unit ends.
  virtual const at::Tensor& rows(size_t unit) = 0;
  /// Whether rows() are the same in every step, so that backward can write to them directly.
  virtual bool keeps_rows() const { return true; }
  /// Called when the rows have all gradients of this rank for the unit. Units begin in order, during
  /// backward.
  virtual void begin(size_t unit, Gradients& gradients) = 0;
  /// Waits for the sums, divides them by gradients.divisor() and stores them. All units have begun;
  /// they end in order.
  virtual void end(size_t unit, Gradients& gradients) = 0;
};

}  // namespace hanji::parallel
