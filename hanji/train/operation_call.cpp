#include "hanji/train/operation_call.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "hanji/compute/attention.h"
#include "hanji/compute/cross_entropy.h"
#include "hanji/compute/gelu.h"
#include "hanji/compute/layer_norm.h"
#include "hanji/compute/linear.h"
#include "hanji/parallel/context/attention.h"

namespace hanji::train {
namespace {

using compute::Weight;
using plan::OperationKind;
using Outputs = std::vector<at::Tensor>;

/// The leaves of an operation, and what its forward has left.
class Call {
 public:
  Call(const plan::Operation& operation, const base::KernelChoice& kernels, c10::Device device)
      : o_(operation), kernels_(kernels), device_(device) {
    forward_ = make();
  }

  void forward() { outputs_ = forward_(); }
  void backward() {
    if (o_.kind == OperationKind::kCopy) return outputs_.clear();
    if (gradients_.empty()) {
      for (const at::Tensor& one : outputs_) gradients_.push_back(at::ones_like(one));
    }
    torch::autograd::backward(outputs_, gradients_);
    outputs_.clear();
    for (const at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
  }

 private:
  using Forward = std::function<Outputs()>;

  bool is_double() const { return kernels_.precision == base::Precision::kFloat64; }
  at::ScalarType stream() const { return is_double() ? at::kDouble : at::kFloat; }
  at::ScalarType product() const {
    return kernels_.precision == base::Precision::kBFloat16 ? at::kBFloat16 : stream();
  }

  at::TensorOptions on(at::ScalarType type) const {
    return at::TensorOptions(type).device(device_);
  }
  at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type) {
    const at::Tensor values = at::linspace(-1, 1, c10::multiply_integers(sizes), on(at::kFloat));
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
        return
            [x = leaf({rows, o_.columns}, product()), targets = at::zeros({rows}, on(at::kLong))] {
              return Outputs{compute::cross_entropy_sum(x, targets)};
            };
      case OperationKind::kCopy:
        return [x = at::zeros({rows, o_.columns}, on(stream()))] { return Outputs{x.clone()}; };
      case OperationKind::kRecorded: break;
    }
    return [] { return Outputs(); };
  }

  Forward attention() {
    const compute::AttentionOptions options{
        .heads = o_.inner, .attention = kernels_.attention, .kv_heads = o_.kv_heads};
    const int64_t kv_heads = o_.kv_heads == 0 ? o_.inner : o_.kv_heads;
    const int64_t row = o_.columns + 2 * (o_.columns / o_.inner * kv_heads);
    // As rank 0 of a ring, whose peers send nothing.
    const auto alone =
        parallel::tensor::Axis::silent(0, o_.ring_ranks, [](const parallel::tensor::AxisCall&) {});
    const auto places = parallel::context::places_on(alone, o_.rows, layout::ContextWay::kRing);
    return
        [x = leaf({o_.samples, places.num_own(), row}, product()), bias = weight({row}), options,
         places] { return Outputs{parallel::context::causal_attention(x, bias, options, places)}; };
  }

  Forward embedding() {
    const at::Tensor tokens = at::arange(o_.samples * o_.rows, on(at::kLong))
                                  .remainder(o_.inner)
                                  .view({o_.samples, o_.rows});
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
  c10::Device device_;
  std::vector<at::Tensor> leaves_;
  Forward forward_;
  Outputs outputs_, gradients_;
};

double work_of(const plan::Operation& one) {
  const double elements =
      static_cast<double>(one.samples * one.rows) * static_cast<double>(one.columns);
  if (one.kind == OperationKind::kProduct) return elements * static_cast<double>(one.inner);
  return one.kind == OperationKind::kAttention ? elements * static_cast<double>(one.rows)
                                               : elements;
}

int64_t half(int64_t count) { return (count + 1) / 2; }

/// Heads stay as wide, and as many to one of keys and values.
void halve_heads(plan::Operation& one) {
  const int64_t of_head = one.columns / one.inner;
  const int64_t heads_of_key = one.kv_heads == 0 ? 1 : one.inner / one.kv_heads;
  const int64_t keys = half(one.inner / heads_of_key);
  if (one.kv_heads > 0) one.kv_heads = keys;
  one.inner = keys * heads_of_key;
  one.columns = one.inner * of_head;
}

/// Result: whether there was something to halve.
bool halve(plan::Operation& one) {
  constexpr int64_t kMinRowsOfRing = 4;  // of each rank: an early and a late part
  const plan::Operation before = one;
  if (one.kind == OperationKind::kEmbedding) one.inner = half(one.inner);  // with its rows
  if (one.kind == OperationKind::kProduct && one.inner > std::max(one.rows, one.columns)) {
    one.inner = half(one.inner);
  } else if (one.kind == OperationKind::kProduct && one.columns > one.rows) {
    one.columns = half(one.columns);
  } else if (one.samples > 1) {
    one.samples = half(one.samples);
  } else if (one.rows > kMinRowsOfRing * one.ring_ranks) {
    one.rows = half(one.rows);
  } else if (one.kind == OperationKind::kAttention) {
    halve_heads(one);
  } else {
    one.columns = half(one.columns);
  }
  return tensor_bytes(one) < tensor_bytes(before);
}

}  // namespace

int64_t tensor_bytes(const plan::Operation& one) {
  const int64_t rows = one.samples * one.rows;
  int64_t elements = rows * one.columns;
  if (one.kind == OperationKind::kAttention) elements *= 4;  // queries, keys, values, results
  if (one.kind == OperationKind::kProduct) elements += (rows + one.columns) * one.inner;
  if (one.kind == OperationKind::kEmbedding) elements += one.inner * one.columns;
  return 4 * 4 * elements;
}

OperationPart part_within(const plan::Operation& operation, int64_t max_bytes) {
  OperationPart part{operation};
  while (tensor_bytes(part.operation) > max_bytes && halve(part.operation)) {
  }
  part.scale = work_of(operation) / work_of(part.operation);
  return part;
}

MakeCall own_call(const plan::Operation& operation, const base::KernelChoice& kernels,
                  c10::Device device) {
  return [operation, kernels, device] {
    const auto call = std::make_shared<Call>(operation, kernels, device);
    return OperationCall{[] {}, [call] { call->forward(); }, [call] { call->backward(); }};
  };
}

}  // namespace hanji::train
