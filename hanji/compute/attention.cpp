#include "hanji/compute/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "hanji/base/attention_extent.h"
#include "hanji/base/status.h"
#include "hanji/compute/internal/attention_kernels.h"
#include "hanji/compute/internal/row_kernels.h"
#include "hanji/compute/internal/tensors.h"
#include "hanji/compute/internal/tile_products.h"
#include "hanji/compute/whole_vectors.h"
#include "hanji/trace/own_kernel.h"

namespace hanji::compute {
namespace {

using internal::ComputedIn;
using internal::pointer;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// How the last dimension of qkv is divided.
struct HeadSizes {
  int64_t kv_heads, group;  ///< Heads of queries that share one of keys and values.
  int64_t size, width;      ///< Of one head, and of all heads of queries.

  HeadSizes(int64_t row, int64_t heads, int64_t asked)
      : kv_heads(asked == 0 ? heads : asked),
        group(heads / std::max<int64_t>(1, kv_heads)),
        size(row / std::max<int64_t>(1, heads + 2 * kv_heads)),
        width(heads * size) {
    if (heads >= 1 && group * kv_heads == heads && width + 2 * kv_heads * size == row) return;
    throw Error(
        base::invalid_argument(fmt::format("causal_attention: {} heads of queries and {} of keys "
                                           "and values on rows of {}; heads are a "
                                           "multiple of kv_heads, and rows of heads + 2 kv_heads",
                                           heads, kv_heads, row)));
  }
};

/// What every head of a batch shares.
template <class T>
struct Heads : HeadSizes {
  int64_t batch, length, row;
  const T* qkv;
  const ComputedIn<T>* bias;

  Heads(const at::Tensor& qkv_tensor, const at::Tensor& bias_tensor, const HeadSizes& sizes)
      : HeadSizes(sizes),
        batch(qkv_tensor.size(0)),
        length(qkv_tensor.size(1)),
        row(qkv_tensor.size(2)),
        qkv(pointer<T>(qkv_tensor)),
        bias(pointer<ComputedIn<T>>(bias_tensor)) {}

  internal::Head<T> head(int64_t sample, int64_t index) const {
    const int64_t first = index * group * size;
    const int64_t keys = width + index * size - first, values = keys + kv_heads * size;
    return {length,      size, group, width, row, keys, values, qkv + qkv_part(sample, index),
            bias + first};
  }
  /// Where the first query of a group lies in a tensor [batch, length, row].
  int64_t qkv_part(int64_t sample, int64_t index) const {
    return sample * length * row + index * group * size;
  }
  /// In one [batch, length, width].
  int64_t out_part(int64_t sample, int64_t index) const {
    return sample * length * width + index * group * size;
  }
  /// In one [batch, heads, length, 2].
  int64_t softmax_part(int64_t sample, int64_t index) const {
    return (sample * kv_heads + index) * group * length * 2;
  }
};

/// hanji's kernels of one head, in vectors of what T is computed in.
template <class T>
struct VectorKernels {
  using Storage = T;
  using C = ComputedIn<T>;

  static size_t forward_scratch(const Heads<T>& all) {
    return internal::attention_forward_scratch<C>(all.length, all.size);
  }
  static size_t backward_scratch(const Heads<T>& all) {
    return internal::attention_backward_scratch<C>(all.length, all.size);
  }
  static void forward(const internal::Head<T>& head, T* out, C* softmax, C* scratch) {
    internal::attention_forward<T>(head, out, softmax, scratch);
  }
  static void backward(const internal::Head<T>& head, const internal::AttentionBackward<T>& a,
                       C* scratch) {
    internal::attention_backward<T>(head, a, scratch);
  }
};

/// The same by products of bf16 tiles.
struct TileKernels {
  using Storage = internal::BFloat16;
  using Extent = base::TileAttentionExtent;

  static size_t forward_scratch(const Heads<Storage>& all) {
    return static_cast<size_t>(Extent::of(all.length, all.size).forward_elements());
  }
  static size_t backward_scratch(const Heads<Storage>& all) {
    return static_cast<size_t>(Extent::of(all.length, all.size).backward_elements());
  }
  static void forward(const internal::Head<Storage>& head, Storage* out, float* softmax,
                      float* scratch) {
    internal::tile_attention_forward(head, out, softmax, scratch, internal::tile_product);
  }
  static void backward(const internal::Head<Storage>& head,
                       const internal::AttentionBackward<Storage>& a, float* scratch) {
    internal::tile_attention_backward(head, a, scratch, internal::tile_product);
  }

  internal::TileRegisters registers;
};

/// body(kernels) with those of the storage type.
template <class Body>
void with_kernels(at::ScalarType type, bool by_tiles, const Body& body) {
  if (by_tiles) return body(std::type_identity<TileKernels>());
  internal::with_storage(type, [&]<class T>(T) { body(std::type_identity<VectorKernels<T>>()); });
}

/// body(sample, head of keys and values, scratch), each thread with its own scratch.
template <class Kernels, class T, class Body>
void for_heads(const Heads<T>& all, size_t scratch_elements, const Body& body) {
  using C = ComputedIn<T>;
  at::parallel_for(0, all.batch * all.kv_heads, 1, [&](int64_t begin, int64_t end) {
    [[maybe_unused]] const Kernels of_thread;
    auto scratch = at::empty({static_cast<int64_t>(scratch_elements)},
                             std::is_same_v<C, double> ? at::kDouble : at::kFloat);
    for (int64_t i = begin; i < end; ++i) {
      body(i / all.kv_heads, i % all.kv_heads, static_cast<C*>(scratch.data_ptr()));
    }
  });
}

/// Two products of the lower triangle forward, five backward; q, k, v and the result are read or written once, backward
/// their gradients too.
trace::KernelWork attention_work(const at::Tensor& qkv, const HeadSizes& sizes, bool is_backward) {
  const auto products = static_cast<double>(qkv.size(0) * qkv.size(1) * qkv.size(1) * sizes.width);
  const int64_t passed = qkv.numel() + qkv.size(0) * qkv.size(1) * sizes.width;
  return {.name = "hanji::attention",
          .flops = (is_backward ? 5 : 2) * products,
          .bytes = (is_backward ? 2 : 1) * passed * static_cast<int64_t>(qkv.element_size())};
}

struct BlockedAttention : torch::autograd::Function<BlockedAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& bias, const Weight* weight, const HeadSizes* sizes,
                            bool by_tiles) {
    const auto qkv = input.contiguous();
    const int64_t heads = sizes->kv_heads * sizes->group;
    auto out = at::empty({qkv.size(0), qkv.size(1), sizes->width}, qkv.options());
    auto softmax = at::empty({qkv.size(0), heads, qkv.size(1), 2}, bias.options());
    const trace::OwnKernel kernel(attention_work(qkv, *sizes, false));
    with_kernels(qkv.scalar_type(), by_tiles, [&]<class K>(std::type_identity<K>) {
      using T = typename K::Storage;
      using C = ComputedIn<T>;
      const Heads<T> all(qkv, bias, *sizes);
      for_heads<K>(all, K::forward_scratch(all), [&](int64_t sample, int64_t head, C* memory) {
        K::forward(all.head(sample, head), pointer<T>(out) + all.out_part(sample, head),
                   pointer<C>(softmax) + all.softmax_part(sample, head), memory);
      });
    });
    context->save_for_backward({qkv, bias, softmax});
    context->saved_data["slot"] = weight->slot;
    context->saved_data["kv_heads"] = sizes->kv_heads;
    context->saved_data["by_tiles"] = by_tiles;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto &qkv = saved[0], &bias = saved[1], &softmax = saved[2];
    const auto g_out = gradients[0].contiguous();
    const HeadSizes sizes(qkv.size(2), softmax.size(1), context->saved_data["kv_heads"].toInt());
    auto g_qkv = at::empty_like(qkv);
    auto sums = at::empty({qkv.size(0), qkv.size(2)}, bias.options());
    auto g_bias = gradient_memory({bias, context->saved_data["slot"].toTensor()});
    const bool by_tiles = context->saved_data["by_tiles"].toBool();
    const trace::OwnKernel kernel(attention_work(qkv, sizes, true));
    with_kernels(qkv.scalar_type(), by_tiles, [&]<class K>(std::type_identity<K>) {
      using T = typename K::Storage;
      using C = ComputedIn<T>;
      const Heads<T> all(qkv, bias, sizes);
      for_heads<K>(all, K::backward_scratch(all), [&](int64_t sample, int64_t head, C* memory) {
        const internal::Head<T> one = all.head(sample, head);
        K::backward(one,
                    {pointer<T>(g_out) + all.out_part(sample, head),
                     pointer<C>(softmax) + all.softmax_part(sample, head),
                     pointer<T>(g_qkv) + all.qkv_part(sample, head),
                     pointer<C>(sums) + sample * all.row + (one.bias - all.bias)},
                    memory);
      });
      internal::sum_rows(pointer<C>(sums), sums.size(0), sums.size(1), pointer<C>(g_bias));
    });
    return {g_qkv, g_bias, {}, {}, {}};
  }
};

/// Plain operations over the whole square; the only path that drops attention weights. The heads of a
/// group are rows of one product.
at::Tensor dropping_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& options) {
  // How many heads are here must not choose the kernels.
  const int64_t length = q.size(2), size = q.size(3), padded = whole_vectors(length, q);
  const std::vector<int64_t> square = {q.size(0), q.size(1), padded, padded};
  const std::vector<int64_t> rows = {q.size(0), k.size(1), q.size(1) / k.size(1) * padded, -1};
  const auto tokens = [&](const at::Tensor& x) { return with_zeros_behind(x, padded, size); };
  auto scores = matmul_each(tokens(q).reshape(rows), tokens(k).transpose(2, 3)).view(square);
  if (padded > length) scores = scores.narrow(2, 0, length).narrow(3, 0, length);
  const auto above = at::ones({length, length}, q.options().dtype(at::kBool)).triu(1);
  auto weights = (scores / std::sqrt(static_cast<double>(size)))
                     .masked_fill(above, -std::numeric_limits<double>::infinity())
                     .softmax(-1);
  const auto kept =
      with_zeros_behind(dropout(weights, options.dropout, options.key), padded, padded).view(rows);
  // Its gradient is contiguous too, even where it has all tokens.
  return matmul_each(kept, tokens(v))
      .view({q.size(0), q.size(1), padded, size})
      .narrow(2, 0, length);
}

bool is_served(const at::Tensor& qkv, const at::Tensor& bias) {
  return internal::is_served(qkv) && qkv.numel() > 0 &&
         bias.scalar_type() == internal::computed_in(qkv.scalar_type());
}

void check_tiles(const at::Tensor& qkv) {
  if (!qkv.is_cpu() || qkv.scalar_type() != at::kBFloat16) {
    throw Error(base::unsupported(
        fmt::format("causal_attention: Attention::kTiles multiplies bf16 on CPUs, not {} on {}; "
                    "choose Attention::kMath or kFlash",
                    c10::toString(qkv.scalar_type()), qkv.device().str())));
  }
  base::throw_if_error(check_attention(Attention::kTiles, base::Precision::kBFloat16));
}

}  // namespace

Status check_attention(Attention attention, base::Precision precision) {
  if (attention != Attention::kTiles) return {};
  if (precision != base::Precision::kBFloat16) {
    return base::unsupported(
        fmt::format("attention in tiles multiplies bf16, not {}; set compute.dtype = \"bf16\", or "
                    "compute.attention = \"auto\"",
                    name_of(precision)));
  }
  if (internal::has_tile_products()) return {};
  return base::unsupported(
      "attention in tiles takes AVX-512 or AMX, which this process may not use; use a processor "
      "that "
      "has them, or begin a run with compute.attention = \"auto\"");
}

at::Tensor causal_attention(const at::Tensor& qkv, const Weight& bias,
                            const AttentionOptions& options) {
  const HeadSizes sizes(qkv.size(2), options.heads, options.kv_heads);
  const bool plain = options.dropout > 0 || options.attention == Attention::kFlash;
  const bool by_tiles = !plain && options.attention == Attention::kTiles;
  if (by_tiles) check_tiles(qkv);
  if (!plain && is_served(qkv, bias.value)) {
    return BlockedAttention::apply(qkv, bias.value, &bias, &sizes, by_tiles);
  }
  const int64_t batch = qkv.size(0), length = qkv.size(1), kv_width = sizes.kv_heads * sizes.size;
  auto parts = (qkv + bias.value.to(qkv.scalar_type()))
                   .split_with_sizes({sizes.width, kv_width, kv_width}, 2);
  for (at::Tensor& part : parts) part = part.unflatten(2, {-1, sizes.size}).transpose(1, 2);
  const auto &q = parts[0], &k = parts[1], &v = parts[2];
  auto out = options.dropout > 0
                 ? dropping_attention(q, k, v, options)
                 : at::scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, /*is_causal=*/true,
                                                    std::nullopt, /*enable_gqa=*/sizes.group > 1);
  return out.transpose(1, 2).reshape({batch, length, sizes.width});
}

}  // namespace hanji::compute
