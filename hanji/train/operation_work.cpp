#include "hanji/train/operation_work.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "hanji/compute/attention.h"
#include "hanji/compute/cross_entropy.h"
#include "hanji/compute/gelu.h"
#include "hanji/compute/layer_norm.h"
#include "hanji/compute/linear.h"

namespace hanji::train {
namespace {

using compute::Weight;
using plan::OperationKind;
using Outputs = std::vector<at::Tensor>;

constexpr double kMaxCallsAtOnce = 8;
constexpr int64_t kMaxBytesAtOnce = int64_t{64} << 20;

/// The leaves of one call of an operation, and the call.
class Call {
 public:
  Call(const plan::Operation& operation, const base::KernelChoice& kernels)
      : o_(operation), kernels_(kernels) {
    forward_ = make();
  }

  Outputs forward() const { return forward_(); }
  void forget_gradients() const {
    for (const at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
  }

 private:
  using Forward = std::function<Outputs()>;

  bool is_double() const { return kernels_.precision == base::Precision::kFloat64; }
  at::ScalarType stream() const { return is_double() ? at::kDouble : at::kFloat; }
  at::ScalarType product() const {
    return kernels_.precision == base::Precision::kBFloat16 ? at::kBFloat16 : stream();
  }

  at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type) {
    const at::Tensor values = at::linspace(-1, 1, c10::multiply_integers(sizes), at::kFloat);
    return leaves_.emplace_back(values.view(sizes).to(type).set_requires_grad(true));
  }
  Weight weight(at::IntArrayRef sizes) {
    at::Tensor value = leaf(sizes, stream());
    return {value, at::zeros_like(value.detach())};
  }

  Forward make() {
    const int64_t rows = o_.samples * o_.rows;
    switch (o_.kind) {
      case OperationKind::kProduct:
        return [x = leaf({rows, o_.inner}, product()), w = weight({o_.columns, o_.inner})] {
          return Outputs{compute::linear(x, w)};
        };
      case OperationKind::kAttention: return attention();
      case OperationKind::kEmbedding: return embedding();
      case OperationKind::kNorm: return norm(rows);
      case OperationKind::kGelu:
        return [x = leaf({rows, o_.columns}, product()), bias = weight({o_.columns})] {
          return Outputs{compute::bias_gelu(x, bias)};
        };
      case OperationKind::kLoss:
        return [x = leaf({rows, o_.columns}, product()), targets = at::zeros({rows}, at::kLong)] {
          return Outputs{compute::cross_entropy_sum(x, targets)};
        };
      case OperationKind::kRecorded: break;
    }
    return [] { return Outputs(); };
  }

  Forward attention() {
    const compute::AttentionOptions options{
        .heads = o_.inner, .attention = kernels_.attention, .kv_heads = o_.kv_heads};
    const int64_t kv_heads = o_.kv_heads == 0 ? o_.inner : o_.kv_heads;
    const int64_t row = o_.columns + 2 * (o_.columns / o_.inner * kv_heads);
    return [x = leaf({o_.samples, o_.rows, row}, product()), bias = weight({row}), options] {
      return Outputs{compute::causal_attention(x, bias, options)};
    };
  }

  Forward embedding() {
    const at::Tensor tokens =
        at::arange(o_.samples * o_.rows, at::kLong).remainder(o_.inner).view({o_.samples, o_.rows});
    return [tokens, table = weight({o_.inner, o_.columns}),
            positions = weight({o_.rows, o_.columns})] {
      return Outputs{at::embedding(table.value, tokens) + positions.value};
    };
  }

  Forward norm(int64_t rows) {
    const at::Tensor residual = leaf({rows, o_.columns}, stream());
    const compute::Delta delta{leaf({rows, o_.columns}, product()), weight({o_.columns})};
    const compute::LayerNorm norm{weight({o_.columns}), weight({o_.columns})};
    return [residual, delta, norm, type = product()] {
      const compute::Normed result = compute::add_layer_norm(residual, delta, norm, type);
      return Outputs{result.sum, result.normed};
    };
  }

  plan::Operation o_;
  base::KernelChoice kernels_;
  std::vector<at::Tensor> leaves_;
  Forward forward_;
};

/// All forwards, then one backward through all, as layers do.
class Calls {
 public:
  Calls(const plan::Operation& operation, const base::KernelChoice& kernels, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      calls_.push_back(std::make_unique<Call>(operation, kernels));
    }
  }

  void run() {
    Outputs outputs;
    for (const auto& call : calls_) {
      call->forget_gradients();
      for (at::Tensor& one : call->forward()) outputs.push_back(std::move(one));
    }
    if (gradients_.empty()) {
      for (const at::Tensor& one : outputs) gradients_.push_back(at::ones_like(one));
    }
    torch::autograd::backward(outputs, gradients_);
  }

 private:
  std::vector<std::unique_ptr<Call>> calls_;
  Outputs gradients_;
};

int64_t bytes_of(const plan::Operation& one) {
  const int64_t rows = one.samples * one.rows;
  const bool has_inner = one.kind == OperationKind::kProduct;
  return 4 * 4 * (rows * one.columns + (has_inner ? (rows + one.columns) * one.inner : 0));
}

}  // namespace

int64_t calls_at_once(double count, int64_t bytes) {
  const auto wanted = static_cast<int64_t>(std::clamp(std::ceil(count), 1.0, kMaxCallsAtOnce));
  return std::clamp<int64_t>(kMaxBytesAtOnce / std::max<int64_t>(1, bytes), 1, wanted);
}

OperationWork own_work(const plan::Operation& operation, const base::KernelChoice& kernels) {
  const int64_t count = calls_at_once(operation.count, bytes_of(operation));
  const MakeWork make = [operation, kernels, count] {
    return [calls = std::make_shared<Calls>(operation, kernels, count)] { calls->run(); };
  };
  return {make, count};
}

}  // namespace hanji::train
