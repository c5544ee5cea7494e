#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <vector>

#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/fsdp/unit.h"
#include "hanji/parallel/named_parameter.h"
#include "hanji/parallel/test_net.h"

namespace hanji::parallel::unit_net {

struct BlockImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + narrow(torch::tanh(widen(x))); }
  torch::nn::Linear widen = register_module("widen", torch::nn::Linear(24, 83));
  torch::nn::Linear narrow = register_module("narrow", torch::nn::Linear(83, 24));
};
TORCH_MODULE(Block);

/// Blocks of which one is used twice and one is frozen; a buffer.
struct Net : torch::nn::Module {
  explicit Net(int seed = 0) {
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      const auto index = torch::arange(p.numel(), torch::kDouble) + 1 + 100 * seed;
      p.copy_((index.sin() * 0.1).view(p.sizes()));
    }
    for (auto& p : frozen->parameters()) p.set_requires_grad(false);
    scale = register_buffer("scale", torch::full({1}, 1.0 + 0x1p-20 + seed));
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = first(input) * scale.to(input.scalar_type());
    const auto inner = [this](const at::Tensor& in) {
      return unit(twice)(unit(frozen)(unit(twice)(in)));
    };
    return last(recomputes ? checkpointed(inner, x) : inner(x));
  }
  std::vector<at::Tensor> learning() {
    std::vector<at::Tensor> found;
    for (const auto& entry : learning_parameters(*this)) found.push_back(entry.tensor);
    return found;
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 24));
  Block twice = register_module("twice", Block());
  Block frozen = register_module("frozen", Block());
  torch::nn::Linear last = register_module("last", torch::nn::Linear(24, 5));
  at::Tensor scale;
  bool recomputes = false;
};

inline test_net::Values values_of(Net& net) {
  test_net::Values values;
  for (const auto& p : net.parameters()) values.push_back(p.detach().clone());
  return values;
}

/// Of one micro-batch of three rows.
inline at::Tensor rows_of(int step, int part) {
  return test_net::rows(step, 3 * part, 3 * part + 3).to(torch::kFloat);
}

}  // namespace hanji::parallel::unit_net
