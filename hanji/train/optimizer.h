#pragma once

#include <string>
#include <vector>

#include "hanji/parallel/flat_optimizer.h"
#include "hanji/plan/plan.h"

namespace hanji::train {

/// Makes the optimizer of a plan for any part of the parameters; each element has a state of its own.
parallel::MakeOptimizer optimizer_of(const plan::Plan& plan);

/// What that optimizer keeps for each element, in its order, as checkpoints name it: as torch does
/// ("exp_avg"), where torch has it.
std::vector<std::string> moment_names(const parallel::MakeOptimizer& make);

/// The state of an optimizer of the whole flat buffer, under those names.
std::vector<parallel::NamedParameter> moments_of(const parallel::FlatOptimizer& optimizer);

/// The rows of a tensor that has one for each of the names.
std::vector<parallel::NamedParameter> moments_of(const std::vector<std::string>& names,
                                                 const at::Tensor& rows);

}  // namespace hanji::train
