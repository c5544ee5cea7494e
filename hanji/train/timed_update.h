#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "hanji/layout/bucket.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/plan/plan.h"

namespace hanji::train {

/// The norm and the optimizer on parameters of these sizes, as a rank has them that has all.
class TimedUpdate {
 public:
  /// What lies there of a parameter: it, its gradient, both moments and a copy.
  static constexpr int64_t kBytesOfElement = 5 * 4;

  TimedUpdate(const std::vector<int64_t>& sizes, const plan::Plan& plan, c10::Device device);

  void run();

 private:
  layout::FlatLayout layout_;
  at::Tensor gradients_;
  std::unique_ptr<parallel::FlatOptimizer> optimizer_;
};

/// The first parameters of a plan, and what the update of all takes of theirs. Without sizes there are none.
struct UpdatePart {
  std::vector<int64_t> sizes;
  double scale = 1;
};
UpdatePart part_of_update(const plan::Plan& plan, int64_t max_elements);

}  // namespace hanji::train
