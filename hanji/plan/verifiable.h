#pragma once

#include <string_view>

#include "hanji/plan/plan.h"

namespace hanji::plan {

/// Whether a plan promises bits that one process on the CPU has.
/// Errors  kUnsupported with all that such bits exclude: train.bits = fast, GPUs, and in other bits
///         than stable sums of ranks that one process has in another order.
Status check_verifiable(const Plan& plan);

/// The plan of the same job on the ranks that are left without an axis of the mesh, one of each of its
/// groups. What the plan has predicted stays as it was.
/// Errors  those of layout::split_grains().
Result<Plan> without_axis(const Plan& plan, std::string_view axis);

}  // namespace hanji::plan
