#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace hanji::parallel {

/// What trains a parameter.
struct GradientUser {
  std::string strategy;     ///< The function whose handle it is.
  bool has_grains = false;  ///< Its bits are stable: a backward is one grain.
};

/// Calls `on_gradient` whenever backward has put a gradient into `parameter`, after an earlier hook
/// of it: torch keeps only one per parameter.
void add_gradient_hook(const at::Tensor& parameter, GradientUser user,
                       std::function<void()> on_gradient);

/// Takes off the hook that was added last; the earlier one is back.
void remove_gradient_hook(const at::Tensor& parameter);

/// The strategy that trains a parameter already; empty: none.
std::string strategy_of(const at::Tensor& parameter);
/// The same, of stable bits.
std::string stable_strategy_of(const at::Tensor& parameter);

}  // namespace hanji::parallel
