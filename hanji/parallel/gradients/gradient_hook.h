#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace hanji::parallel {

/// Calls `on_gradient` whenever backward has put a gradient into `parameter`, after an earlier hook
/// of it: torch keeps only one per parameter. `strategy` is the function whose handle trains it.
void add_gradient_hook(const at::Tensor& parameter, std::string strategy,
                       std::function<void()> on_gradient);

/// Takes off the hook that was added last; the earlier one is back.
void remove_gradient_hook(const at::Tensor& parameter);

/// The strategy that trains a parameter already; empty: none.
std::string strategy_of(const at::Tensor& parameter);

}  // namespace hanji::parallel
