#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>

#include "hanji/comm/group.h"

namespace hanji::parallel {

struct LossScalerOptions {
  double initial = 65536;
  double growth = 2;     ///< Factor of the scale after `interval` steps without an overflow.
  double backoff = 0.5;  ///< Factor of the scale after an overflow.
  int64_t interval = 2000;
};

/// Scales the loss so that small gradients of 16 bits do not underflow. If gradients overflow on any
/// rank, all ranks skip the step.
///
///   scaler.scale(loss).backward();
///   if (scaler.unscale(gradients)) optimizer.step();
///
/// Source  Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2.
class LossScaler {
 public:
  /// Order   every rank makes it.
  /// Errors  throws kInvalidArgument unless initial > 0, growth >= 1, 0 < backoff < 1, interval >= 1.
  explicit LossScaler(const comm::Group& group, const LossScalerOptions& options = {});

  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients by the scale, in place, and then sets the scale for the next step.
  ///
  /// Order   every rank, once per step. Ranks may hold different gradients: shards.
  /// Result  false on every rank if a gradient of any rank is not finite: skip the update.
  /// Cost    one pass, and an all_reduce of a byte.
  bool unscale(std::span<const at::Tensor> gradients);
  /// The same for the gradients of parameters; skips those without a gradient. A parameter that is
  /// given several times (tied weights) counts once.
  bool unscale_of(std::span<const at::Tensor> parameters);

  /// The same for gradients that are not in memory at the same time: `each` calls its argument with
  /// each gradient in turn.
  ///
  ///   scaler.unscale_each([&](const auto& visit) { sharded.for_each_gradient(visit); });
  using Visit = std::function<void(const at::Tensor&)>;
  bool unscale_each(const std::function<void(const Visit&)>& each);

  /// State to save and to restore with set().
  double factor() const { return factor_; }
  int64_t steps_since_change() const { return steps_; }
  void set(double factor, int64_t steps_since_change);

 private:
  comm::Group group_;
  uint64_t tag_;
  LossScalerOptions options_;
  double factor_;
  int64_t steps_ = 0;
};

}  // namespace hanji::parallel
