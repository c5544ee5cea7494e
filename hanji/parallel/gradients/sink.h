#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace hanji::parallel {

class Gradients;

/// How the gradients of units become sums over all ranks, and who gets them: an all_reduce, a
/// reduce_scatter, a push to servers. It knows nothing of hooks, grains or accumulation.
///
/// Units are numbered in the order in which they begin, the same on every rank.
class GradientSink {
 public:
  virtual ~GradientSink() = default;

  /// Memory for the whole gradients of a unit: [buffers, elements], of any values; one buffer, or in
  /// stable as many as the fold needs. The same tensor until the unit ends.
  virtual const at::Tensor& rows(size_t unit) = 0;
  /// Whether rows() are the same in every step, so that backward may be told of them beforehand.
  virtual bool keeps_rows() const { return true; }
  /// All of this rank's gradients of the unit are in its rows. Units begin in order, while backward
  /// still runs.
  virtual void begin(size_t unit, Gradients& gradients) = 0;
  /// Waits for the sums, divides them by gradients.divisor() and hands them out. All units have
  /// begun, and end in order.
  virtual void end(size_t unit, Gradients& gradients) = 0;
};

}  // namespace hanji::parallel
