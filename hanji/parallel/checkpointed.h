#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "hanji/lens/kept_results.h"

namespace hanji::parallel {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Computes fn(inputs) and keeps only the inputs until backward, which recomputes the rest.
///
/// `fn` may use parameters of any modules; they are found in its graph. It is stored and called again in
/// backward, so objects that it refers to must live until then, unchanged. Undefined inputs are passed
/// to it as such.
/// Result  the bits of fn(inputs), and of its gradients, hooks of parameters included: they run in
///         the caller's backward, where data_parallel() expects them. Masks of torch's dropout are
///         drawn again from the CPU generator's state of the first call; after backward the generator
///         has its previous state. hanji's own dropout has no state. If a tensor is used more than
///         once in fn and also outside of it, its gradients are summed in another order: those of fn
///         first.
/// Cost    one more forward of fn in backward; until then memory for inputs and outputs only.
///         Results of operations that `keeps` selects are kept, and not recomputed:
///         lens::keep_products() for matmuls and attention, the most expensive ones; then 1 us per
///         operation. While such an operation runs, hanji replaces autograd's default engine, of which
///         a process has one; after it, it restores libtorch's own.
/// Errors  throws kInvalidArgument in backward if fn then returns another number of outputs, or runs
///         other operations if results were kept. It cannot be differentiated twice. With `keeps`,
///         throws kUnsupported if autograd's default engine is not libtorch's own, as in a Python
///         process.
/// Thread  a process has one torch generator: ranks that are threads draw from it in any order.
/// Source  Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.
std::vector<at::Tensor> checkpointed_all(const TensorFunction& fn,
                                         const std::vector<at::Tensor>& inputs,
                                         const lens::KeepRule& keeps = {});

/// Whether this thread is in the backward of a checkpointed function, which is a separate graph within
/// the caller's backward.
bool in_checkpointed_backward();

/// The backward of the innermost checkpointed function of this thread; null: none. The value is true
/// until that backward ends.
std::shared_ptr<const bool> current_recomputation();

/// Whether this thread calls a checkpointed function for the second time: a forward inside of a
/// backward.
bool in_recomputation();

template <class Function, size_t... I>
at::Tensor call_with(Function& fn, const std::vector<at::Tensor>& inputs,
                     std::index_sequence<I...> /*places*/) {
  return fn(inputs[I]...);
}

/// The same, with results of operations kept:
/// checkpointed_keeping(hanji::lens::keep_products(), [&](auto x) { return block(x); }, x).
/// Replaces autograd's default engine of this process while an operation with kept results runs.
template <class Function, class... Tensors>
at::Tensor checkpointed_keeping(const lens::KeepRule& keeps, const Function& fn,
                                const Tensors&... inputs) {
  const TensorFunction of_list = [fn](const std::vector<at::Tensor>& list) {
    return std::vector<at::Tensor>{call_with(fn, list, std::index_sequence_for<Tensors...>())};
  };
  return checkpointed_all(of_list, {inputs...}, keeps)[0];
}

/// The same for a function of tensors that returns a tensor: checkpointed([&](auto x) { return block(x); }, x).
template <class Function, class... Tensors>
at::Tensor checkpointed(const Function& fn, const Tensors&... inputs) {
  return checkpointed_keeping({}, fn, inputs...);
}

}  // namespace hanji::parallel
