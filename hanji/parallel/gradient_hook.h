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

/// Makes a second backward() from a loss whose graph was not kept throw kInvalidArgument and name a
/// parameter; torch's own error names none. A loss whose last operation has saved tensors itself
/// (cross_entropy) meets torch's error first: nobody is told where a backward() begins.
class SecondBackwardGuard {
 public:
  /// Of `parameter`, from inside a backward().
  /// Cost    once in a backward() a look at every node of the graph, at its end.
  void on_gradient(const std::string& parameter);

 private:
  int graph_task_ = -1;  ///< The last that was seen.
};

}  // namespace hanji::parallel
