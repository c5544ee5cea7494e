#include "hanji/compute/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "hanji/compute/internal/attention_kernels.h"
#include "hanji/compute/internal/row_kernels.h"
#include "hanji/compute/internal/tensors.h"

namespace hanji::compute {
namespace {

using internal::ComputedIn;
using internal::pointer;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What every head of a batch shares.
template <class T>
struct Heads {
  int64_t batch, heads, length, size, width;
  const T* qkv;
  const ComputedIn<T>* bias;

  Heads(const at::Tensor& qkv_tensor, const at::Tensor& bias_tensor, int64_t num_heads)
      : batch(qkv_tensor.size(0)),
        heads(num_heads),
        length(qkv_tensor.size(1)),
        size(qkv_tensor.size(2) / 3 / num_heads),
        width(qkv_tensor.size(2) / 3),
        qkv(pointer<T>(qkv_tensor)),
        bias(pointer<ComputedIn<T>>(bias_tensor)) {}

  internal::Head<T> head(int64_t sample, int64_t index) const {
    return {length, size, width, qkv + sample * length * 3 * width + index * size,
            bias + index * size};
  }
  /// Where a head's part of a [batch, length, width] tensor begins.
  int64_t part(int64_t sample, int64_t index) const {
    return sample * length * width + index * size;
  }
};

/// body(sample, head, scratch) for every head, each thread with its own scratch.
template <class T, class Body>
void for_heads(const Heads<T>& all, size_t scratch_elements, const Body& body) {
  using C = ComputedIn<T>;
  at::parallel_for(0, all.batch * all.heads, 1, [&](int64_t begin, int64_t end) {
    auto scratch = at::empty({static_cast<int64_t>(scratch_elements)},
                             std::is_same_v<C, double> ? at::kDouble : at::kFloat);
    for (int64_t i = begin; i < end; ++i) {
      body(i / all.heads, i % all.heads, static_cast<C*>(scratch.data_ptr()));
    }
  });
}

struct BlockedAttention : torch::autograd::Function<BlockedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& bias, const Weight* weight, int64_t heads) {
    const auto qkv = input.contiguous();
    auto out = at::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
    auto softmax = at::empty({qkv.size(0), heads, qkv.size(1), 2}, bias.options());
    internal::with_storage(qkv.scalar_type(), [&]<class T>(T) {
      using C = ComputedIn<T>;
      const Heads<T> all(qkv, bias, heads);
      const size_t scratch = internal::attention_forward_scratch<C>(all.length, all.size);
      for_heads(all, scratch, [&](int64_t sample, int64_t head, C* memory) {
        internal::attention_forward<T>(
            all.head(sample, head), pointer<T>(out) + all.part(sample, head),
            pointer<C>(softmax) + (sample * heads + head) * all.length * 2, memory);
      });
    });
    context->save_for_backward({qkv, bias, softmax});
    context->saved_data["slot"] = weight->slot;
    context->saved_data["heads"] = heads;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &qkv = saved[0], &bias = saved[1], &softmax = saved[2];
    const auto g_out = gradients[0].contiguous();
    const int64_t heads = context->saved_data["heads"].toInt();
    auto g_qkv = at::empty_like(qkv);
    auto sums = at::empty({qkv.size(0), qkv.size(2)}, bias.options());
    auto g_bias = gradient_memory({bias, context->saved_data["slot"].toTensor()});
    internal::with_storage(qkv.scalar_type(), [&]<class T>(T) {
      using C = ComputedIn<T>;
      const Heads<T> all(qkv, bias, heads);
      const size_t scratch = internal::attention_backward_scratch<C>(all.length, all.size);
      for_heads(all, scratch, [&](int64_t sample, int64_t head, C* memory) {
        const int64_t part = all.part(sample, head);
        const int64_t qkv_part = sample * all.length * 3 * all.width + head * all.size;
        internal::attention_backward<T>(
            all.head(sample, head),
            {pointer<T>(g_out) + part,
             pointer<C>(softmax) + (sample * heads + head) * all.length * 2,
             pointer<T>(g_qkv) + qkv_part,
             pointer<C>(sums) + sample * 3 * all.width + head * all.size},
            memory);
      });
      internal::sum_rows(pointer<C>(sums), sums.size(0), sums.size(1), pointer<C>(g_bias));
    });
    return {g_qkv, g_bias, {}, {}};
  }
};

/// Plain operations over the whole square; the only path that drops attention weights.
at::Tensor dropping_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& options) {
  const int64_t length = q.size(2);
  auto above = at::ones({length, length}, q.options().dtype(at::kBool)).triu(1);
  auto scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  auto weights = scores.masked_fill(above, -std::numeric_limits<double>::infinity()).softmax(-1);
  return at::matmul(dropout(weights, options.dropout, options.key), v);
}

bool is_served(const at::Tensor& qkv, const at::Tensor& bias) {
  return internal::is_served(qkv) && qkv.numel() > 0 &&
         bias.scalar_type() == internal::computed_in(qkv.scalar_type());
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, const Weight& bias,
                            const AttentionOptions& options) {
  const bool plain = options.dropout > 0 || options.attention == Attention::kFlash;
  if (!plain && is_served(qkv, bias.value)) {
    return BlockedAttention::apply(qkv, bias.value, &bias, options.heads);
  }
  const int64_t batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3;
  auto heads = (qkv + bias.value.to(qkv.scalar_type()))
                   .view({batch, length, 3, options.heads, width / options.heads})
                   .permute({2, 0, 3, 1, 4});
  auto q = heads[0], k = heads[1], v = heads[2];
  auto out = options.dropout > 0
                 ? dropping_attention(q, k, v, options)
                 : at::scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, /*is_causal=*/true);
  return out.transpose(1, 2).reshape({batch, length, width});
}

}  // namespace hanji::compute
