#pragma once

#include <string>
#include <vector>

#include "hanji/parallel/flat_optimizer.h"
#include "hanji/plan/plan.h"

namespace hanji::train {

/// Makes the optimizer of a plan for any part of the parameters; each element has its own state.
parallel::MakeOptimizer optimizer_of(const plan::Plan& plan);

/// The names of that optimizer's moments, in its order, as in checkpoints: torch's names ("exp_avg")
/// if torch has the moment.
std::vector<std::string> moment_names(const parallel::MakeOptimizer& make);

/// The state of an optimizer of the whole flat buffer, under those names.
std::vector<parallel::NamedParameter> moments_of(const parallel::FlatOptimizer& optimizer);

/// The rows of a tensor with one row per name.
std::vector<parallel::NamedParameter> moments_of(const std::vector<std::string>& names,
                                                 const at::Tensor& rows);

}  // namespace hanji::train
