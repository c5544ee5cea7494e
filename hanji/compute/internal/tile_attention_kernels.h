#pragma once

#include "hanji/compute/internal/attention_kernels.h"

// attention_kernels.h in bf16, whose products are of bf16 tiles with float32 sums. Queries, keys and
// values are rounded to bf16 with their biases; so are weights before they meet the values, and, backward,
// weights and the gradients of scores before their products. The softmax is in float32.
namespace hanji::compute::internal {

/// c [m, n] = a [m, k] times b [k, n], or added to c. Rows of b lie in pairs, of which a pair's numbers of
/// one column are neighbours: b[row / 2][column][row % 2]; ldb counts columns. k is even.
struct TileShape {
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  bool adds;
};
using TileProduct = void (*)(const TileShape& shape, const BFloat16* a, const BFloat16* b,
                             float* c);

/// Does what attention_forward() does; softmax[2 t] is the largest of a query's scores times log2(e) / sqrt(d).
void tile_attention_forward(const Head<BFloat16>& head, BFloat16* out, float* softmax,
                            float* scratch, TileProduct product);

/// Does what attention_backward() does.
void tile_attention_backward(const Head<BFloat16>& head,
                             const AttentionBackward<BFloat16>& arguments, float* scratch,
                             TileProduct product);

}  // namespace hanji::compute::internal
