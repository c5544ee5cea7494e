#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>

#include "hanji/comm/group.h"

namespace hanji::parallel {

struct LossScalerOptions {
  double initial = 65536;
  double growth = 2;     ///< Times the scale after `interval` steps without an overflow.
  double backoff = 0.5;  ///< Times the scale after one.
  int64_t interval = 2000;
};

/// Scales the loss so that small gradients of 16 bits do not vanish; a step whose gradients overflow
/// is left out, by all ranks or none.
///
///   scaler.scale(loss).backward();
///   if (scaler.unscale(gradients)) optimizer.step();
///
/// Source  Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2.
class LossScaler {
 public:
  /// Errors  throws kInvalidArgument unless initial > 0, growth >= 1, 0 < backoff < 1, interval >= 1.
  explicit LossScaler(const comm::Group& group, const LossScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients by the scale, in place, and then sets the scale for the next step.
  ///
  /// Order   every rank, once per step. Ranks may hold different gradients: shards.
  /// Result  false on every rank if a gradient of any rank is not finite: leave the update out.
  /// Cost    one pass, and an all_reduce of a byte.
  bool unscale(std::span<const at::Tensor> gradients);
  /// The same of the gradients of parameters; those without one are left out.
  bool unscale_of(std::span<const at::Tensor> parameters);

  /// The same of gradients that are not in memory all at one time: `each` calls what it is given with
  /// one after the other.
  ///
  ///   scaler.unscale_each([&](const auto& visit) { sharded.for_each_gradient(visit); });
  using Visit = std::function<void(const at::Tensor&)>;
  bool unscale_each(const std::function<void(const Visit&)>& each);

  /// To be saved and set again: with both the same steps follow.
  double factor() const { return factor_; }
  int64_t steps_since_change() const { return steps_; }
  void set(double factor, int64_t steps_since_change);

 private:
  comm::Group group_;
  LossScalerOptions options_;
  double factor_;
  int64_t steps_ = 0;
};

}  // namespace hanji::parallel
