#pragma once

#include <cstdint>

#include "hanji/compute/internal/number.h"

// Kernels over the rows of contiguous matrices, on raw memory. T is the storage type (float,
// double, BFloat16), C what it is computed in. Rows are independent: callers may divide them
// among threads at multiples of kRowsPerSum. Sums over rows go to `sums`, a matrix
// [num_sums(rows), columns] whose rows sum_rows() adds up.
namespace hanji::compute::internal {

struct Rows {
  int64_t begin = 0, end = 0;
  int64_t columns = 0;
};

/// out = gelu(x + bias).
template <class T>
void gelu_forward(const Rows& rows, const T* x, const ComputedIn<T>* bias, T* out);

/// gx = g * gelu'(x + bias); sums of gx. gx may be g.
template <class T>
struct GeluBackward {
  const T* g;
  const T* x;
  const ComputedIn<T>* bias;
  T* gx;
  ComputedIn<T>* sums;
};
template <class T>
void gelu_backward(const Rows& rows, const GeluBackward<T>& arguments);

/// sum = residual + delta + bias (delta null: sum is not written, residual is normalised);
/// out = (sum - mean) * inverse * weight + shift.
template <class T>
struct NormForward {
  using C = ComputedIn<T>;
  const C* residual;
  const T* delta;
  const C* delta_bias;  ///< May be null.
  const C* weight;
  const C* shift;
  C epsilon;
  C* sum;
  T* out;
  C* mean;     ///< One per row.
  C* inverse;  ///< One over the deviation, one per row.
};
template <class T>
void norm_forward(const Rows& rows, const NormForward<T>& arguments);

/// gx = derivative through the normalisation + g_sum, also stored as T in g_delta;
/// sums of g * normalised, of g and of gx.
template <class T>
struct NormBackward {
  using C = ComputedIn<T>;
  const T* g;
  const C* g_sum;  ///< May be null: the sum itself went nowhere.
  const C* sum;
  const C* mean;
  const C* inverse;
  const C* weight;
  C* gx;
  T* g_delta;  ///< May be null.
  C* weight_sums;
  C* shift_sums;
  C* gx_sums;
};
template <class T>
void norm_backward(const Rows& rows, const NormBackward<T>& arguments);

/// losses[row] = log sum exp(logits) - logits[target], and 0 for a target of -1. With
/// `overwrite`, logits become the gradient of the loss: softmax minus one at the target.
template <class T>
void cross_entropy(const Rows& rows, T* logits, const int64_t* targets, double* losses,
                   bool overwrite);

/// out[column] = sums of the matrix' rows, first to last.
template <class C>
void sum_rows(const C* matrix, int64_t rows, int64_t columns, C* out);

}  // namespace hanji::compute::internal
