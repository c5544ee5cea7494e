#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

namespace hanji::parallel {

/// What trains a parameter.
struct GradientUser {
  std::string strategy;             ///< The function whose handle it is.
  bool has_grains = false;          ///< Its bits are stable: a backward is one grain.
  std::weak_ptr<void> handle = {};  ///< The ShardedModel of a strategy that shards the module.
  const void* owner = nullptr;      ///< The owner of the hook, for remove_gradient_hook().
  bool only_watches = false;        ///< It trains the parameter no more than nobody does.
};

/// Calls `on_gradient` whenever backward has put a gradient into `parameter`, after an earlier hook
/// of it: torch keeps only one per parameter.
void add_gradient_hook(const at::Tensor& parameter, GradientUser user,
                       std::function<void()> on_gradient);

/// Takes off the hook of `owner` that was added last; the others stay.
void remove_gradient_hook(const at::Tensor& parameter, const void* owner = nullptr);

/// The strategy that trains a parameter already; empty: none, or it requires no gradient.
std::string strategy_of(const at::Tensor& parameter);
/// The same, of stable bits.
std::string stable_strategy_of(const at::Tensor& parameter);
/// The ShardedModel that trains a parameter, whatever memory this has now; null: none does.
std::shared_ptr<void> handle_of(const at::Tensor& parameter);

}  // namespace hanji::parallel
