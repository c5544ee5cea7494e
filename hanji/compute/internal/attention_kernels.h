#pragma once

#include <cstddef>
#include <cstdint>

#include "hanji/compute/internal/number.h"

// Causal attention of one head of one sample, on raw memory. Blocks above the diagonal are
// neither computed nor stored. Every element of a result is one sum over keys (or queries) in
// ascending order, whatever the vector width.
namespace hanji::compute::internal {

/// One head of one sample. Row t of queries, keys and values starts at qkv + t * 3 * width.
template <class T>
struct Head {
  using C = ComputedIn<T>;
  int64_t length = 0;       ///< T, tokens.
  int64_t size = 0;         ///< d, elements of a head.
  int64_t width = 0;        ///< C, elements of all heads.
  const T* qkv = nullptr;   ///< The head's first query.
  const C* bias = nullptr;  ///< The head's part of the queries' bias; keys' and values' at width.
};

/// Elements of scratch that a call needs; the memory must be aligned to 64 bytes.
template <class C>
size_t attention_forward_scratch(int64_t length, int64_t size);
template <class C>
size_t attention_backward_scratch(int64_t length, int64_t size);

/// out (rows of `width`) = softmax(q k^T / sqrt(d)) v. softmax[2 t] is the largest score of query t,
/// softmax[2 t + 1] one over the sum of exp(score - largest): backward then forms the very weights
/// of forward again, which the logarithm of the sum would round.
template <class T>
void attention_forward(const Head<T>& head, T* out, ComputedIn<T>* softmax, ComputedIn<T>* scratch);

/// g_qkv (rows of 3 * width) from the gradient of out; bias_sums: g_qkv summed over the tokens,
/// laid out as the bias.
template <class T>
struct AttentionBackward {
  const T* g_out;
  const ComputedIn<T>* softmax;
  T* g_qkv;
  ComputedIn<T>* bias_sums;
};
template <class T>
void attention_backward(const Head<T>& head, const AttentionBackward<T>& arguments,
                        ComputedIn<T>* scratch);

}  // namespace hanji::compute::internal
