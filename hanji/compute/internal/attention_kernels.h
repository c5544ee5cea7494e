#pragma once

#include <cstddef>
#include <cstdint>

#include "hanji/compute/internal/number.h"

// Causal attention of heads of one sample, on raw memory. Blocks above the diagonal are
// neither computed nor stored. Every element of a result is one sum over keys (or queries) in
// ascending order, whatever the vector width.
namespace hanji::compute::internal {

/// A head of keys and values of one sample, and the heads of queries that share it, which lie one after
/// another. Offsets are the same in qkv, in the bias and in their gradients.
template <class T>
struct Head {
  using C = ComputedIn<T>;
  int64_t length = 0;       ///< T, tokens.
  int64_t size = 0;         ///< d, elements of a head.
  int64_t group = 1;        ///< Heads of queries.
  int64_t width = 0;        ///< Elements of a token's queries, those of all heads.
  int64_t row = 0;          ///< Elements of a token's queries, keys and values.
  int64_t keys = 0;         ///< From the first query to the key.
  int64_t values = 0;       ///< From the first query to the value.
  const T* qkv = nullptr;   ///< The first token's first query.
  const C* bias = nullptr;  ///< That of the first query.
};

/// Elements of scratch that a call needs; the memory must be aligned to 64 bytes.
template <class C>
size_t attention_forward_scratch(int64_t length, int64_t size);
template <class C>
size_t attention_backward_scratch(int64_t length, int64_t size);

/// out (rows of `width`) = softmax(q k^T / sqrt(d)) v. Of each head of queries, softmax[2 t] is the
/// largest score of query t, softmax[2 t + 1] one over the sum of exp(score - largest): backward then
/// forms the very weights of forward again, which the logarithm of the sum would round.
template <class T>
void attention_forward(const Head<T>& head, T* out, ComputedIn<T>* softmax, ComputedIn<T>* scratch);

/// g_qkv (rows of `row`) from the gradient of out; bias_sums: g_qkv summed over the tokens, laid out as
/// the bias. Keys and values receive the sum over the heads that share them, first to last.
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
