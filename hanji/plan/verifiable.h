#pragma once

#include <cstdint>
#include <string_view>

#include "hanji/plan/plan.h"

namespace hanji::plan {

/// Where ranks sum in another order than one process: in float64, the part of a tensor's largest value by
/// which they may differ from it.
///
/// A sum of n terms, taken in another order, differs by about sqrt(n) 2^-53 of its terms' size. The longest
/// (over the tokens of a step, over features) have some 10^4 terms, and one backward passes through some ten
/// after each other: 10 x 100 x 1.1e-16 is 10^-13. An update m / (sqrt(v) + epsilon) passes on a gradient's
/// error (1 + m / sqrt(v)) / epsilon times: at most some three times, as epsilon is kVerifiedEpsilon or
/// more, and times the learning rate. What parameters are off adds to the next gradient in proportion, so that
/// over tens of steps the error grows as their number does. Found are 10^-15 to 10^-14, after 20 steps
/// too; a mistake changes leading digits.
inline constexpr double kVerifiedWithin = 1e-12;

/// The least train.epsilon there: the update is then that of gradient descent with momentum, for gradients
/// below 1. With less, elements whose gradients are rounding errors would move by the learning rate.
inline constexpr double kVerifiedEpsilon = 1;

/// The most bytes that the one process keeps there: its tensors after each step, in files.
inline constexpr int64_t kMaxVerifiedBytes = int64_t{8} << 30;

/// Whether a plan's ranks can be compared with one process on the CPU: bit for bit, or within
/// kVerifiedWithin.
/// Errors  kUnsupported with all that excludes both: GPUs, and without stable bits sums of ranks that one
///         process has in another order, unless float64, the epsilon and the bytes above allow the second.
Status check_verifiable(const Plan& plan);

/// Of a plan that check_verifiable() takes: kVerifiedWithin, or 0 for one that is compared bit for bit.
double verified_within(const Plan& plan);

/// The plan of the same job on the ranks that are left without an axis of the mesh, one of each of its
/// groups. What the plan has predicted stays as it was.
/// Errors  those of layout::split_grains().
Result<Plan> without_axis(const Plan& plan, std::string_view axis);

}  // namespace hanji::plan
