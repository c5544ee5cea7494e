#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

namespace hanji::compute {

/// A weight's gradient that a backward has left to be computed later.
struct DeferredGradient {
  torch::autograd::Edge weight;         ///< To the leaf whose gradient it is.
  std::vector<at::Tensor> held;         ///< What `product` keeps in memory.
  std::function<at::Tensor()> product;  ///< Computes it.
  uint64_t order = 0;                   ///< Backward runs larger ones first.
};

/// While it lives, backwards of this thread do not compute the gradients of weights, where an operation
/// calls weight_gradient(); its input gets its gradient. gradient_memory() is new memory meanwhile: a slot
/// may be wanted by another backward before these gradients are added.
///
/// Thread  that of backward on the CPU; a GPU's backward runs on a thread of libtorch.
class DeferGradients {
 public:
  DeferGradients();
  ~DeferGradients();
  DeferGradients(const DeferGradients&) = delete;
  DeferGradients& operator=(const DeferGradients&) = delete;

  /// In the order of the backwards.
  std::vector<DeferredGradient> deferred;

 private:
  DeferGradients* outer_;
};

/// Whether this thread has a DeferGradients.
bool defers_gradients();

/// As weight_gradient(), with one.
at::Tensor defer(uint32_t input, std::vector<at::Tensor> held, std::function<at::Tensor()> product);

/// In the backward of an operation: `product()`, the gradient of its tensor input `input`. With a
/// DeferGradients, of a leaf undefined, and deferred. `held`: what `product` keeps in memory.
template <class Product>
at::Tensor weight_gradient(uint32_t input, std::initializer_list<at::Tensor> held,
                           const Product& product) {
  return defers_gradients() ? defer(input, held, product) : product();
}

}  // namespace hanji::compute
