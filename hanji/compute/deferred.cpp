#include "hanji/compute/deferred.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <utility>

namespace hanji::compute {
namespace {

DeferGradients*& innermost() {
  thread_local DeferGradients* now = nullptr;
  return now;
}

}  // namespace

DeferGradients::DeferGradients() : outer_(std::exchange(innermost(), this)) {}
DeferGradients::~DeferGradients() { innermost() = outer_; }

bool defers_gradients() { return innermost() != nullptr; }

/// What lies between a weight and its leaf would see the backward twice.
at::Tensor defer(uint32_t input, std::vector<at::Tensor> held,
                 std::function<at::Tensor()> product) {
  const auto operation = torch::autograd::get_current_node();
  const torch::autograd::Edge& weight = operation->next_edge(input);
  if (dynamic_cast<torch::autograd::AccumulateGrad*>(weight.function.get()) == nullptr) {
    return product();
  }
  innermost()->deferred.push_back(
      {weight, std::move(held), std::move(product), operation->sequence_nr()});
  return {};
}

}  // namespace hanji::compute
