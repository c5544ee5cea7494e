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

/// fn(inputs), of which only the inputs are kept until backward, which computes the rest again.
///
/// `fn` may use parameters of any modules; they are found in what it computes. It is kept and called
/// once more in backward, so what it refers to must live until then and be the same. Inputs that are
/// not defined reach it as such, both times.
/// Result  the bits of fn(inputs), and of its gradients, hooks of parameters included: they run in
///         the caller's backward, where data_parallel() expects them. Masks of torch's dropout are
///         drawn again from the CPU generator's state of the first time; that state goes on after
///         backward as if nothing had been drawn. hanji's own dropout has no state.
///         What is used more than once in fn, and outside of it too, has its gradients added up in
///         another order: fn's own first.
/// Cost    one more forward of fn in backward; between, no memory but inputs and outputs.
///         Results of operations that `keeps` names are kept too, and not made again:
///         lens::keep_products() for matrix products and attention, which leaves backward with what
///         is cheap; then 1 us per operation. While such an operation runs, autograd's default
///         engine, of which a process has one, is one of ours; after it, libtorch's own again.
/// Errors  throws kInvalidArgument in backward if fn gives another number of outputs then, or meets
///         other operations where results were kept. It cannot be differentiated twice. With
///         `keeps`, throws kUnsupported where autograd's default engine is not libtorch's own, as in
///         a Python process.
/// Thread  torch's generator is one per process: ranks that are threads draw from it in any order.
/// Source  Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.
std::vector<at::Tensor> checkpointed_all(const TensorFunction& fn,
                                         const std::vector<at::Tensor>& inputs,
                                         const lens::KeepRule& keeps = {});

/// Whether this thread is in the backward of a checkpointed function: in a graph of its own, whose end
/// is not that of the caller's backward.
bool in_checkpointed_backward();

/// The backward of the innermost checkpointed function that this thread is in; null: in none. What it
/// points to is true until that backward ends.
std::shared_ptr<const bool> current_recomputation();

/// Whether this thread calls a checkpointed function for the second time: a forward inside of a
/// backward.
bool in_recomputation();

template <class Function, size_t... I>
at::Tensor call_with(Function& fn, const std::vector<at::Tensor>& inputs,
                     std::index_sequence<I...> /*places*/) {
  return fn(inputs[I]...);
}

/// The same, of which results of operations are kept:
/// checkpointed_keeping(hanji::lens::keep_products(), [&](auto x) { return block(x); }, x).
/// Takes autograd's default engine of this process while an operation runs whose results are kept.
template <class Function, class... Tensors>
at::Tensor checkpointed_keeping(const lens::KeepRule& keeps, const Function& fn,
                                const Tensors&... inputs) {
  const TensorFunction of_list = [fn](const std::vector<at::Tensor>& list) {
    return std::vector<at::Tensor>{call_with(fn, list, std::index_sequence_for<Tensors...>())};
  };
  return checkpointed_all(of_list, {inputs...}, keeps)[0];
}

/// The same of a function of tensors to a tensor: checkpointed([&](auto x) { return block(x); }, x).
template <class Function, class... Tensors>
at::Tensor checkpointed(const Function& fn, const Tensors&... inputs) {
  return checkpointed_keeping({}, fn, inputs...);
}

}  // namespace hanji::parallel
