#include "hanji/compute/product.h"

#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <optional>

// MKL's, within libtorch where that is built on it. Weak: null where it is not.
extern "C" __attribute__((weak)) void cblas_gemm_bf16bf16f32(int layout, int transpose_a,
                                                             int transpose_b, int m, int n, int k,
                                                             float alpha, const void* a, int lda,
                                                             const void* b, int ldb, float beta,
                                                             float* c, int ldc);

namespace hanji::compute {
namespace {

using base::WeightGradient;

constexpr int kRowMajor = 101;
constexpr int kAsItIs = 111;
constexpr int kTransposed = 112;

std::atomic<WeightGradient> in_use{WeightGradient::kRounded};

/// A matrix as BLAS takes it.
struct Factor {
  int transpose;
  int64_t stride;  ///< Between the rows of what is transposed.
};

bool fits(int64_t number) { return number > 0 && number <= std::numeric_limits<int>::max(); }

/// Nothing where elements of neither rows nor columns lie side by side.
std::optional<Factor> factor_of(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const int64_t of_row = matrix.stride(0), of_column = matrix.stride(1);
  if ((of_column == 1 || columns == 1) && of_row >= columns) return Factor{kAsItIs, of_row};
  if ((of_row == 1 || rows == 1) && of_column >= rows) return Factor{kTransposed, of_column};
  return std::nullopt;
}

/// Whether it was served: bf16 factors and float32 results on the CPU, of sizes and strides that BLAS takes.
bool sum_in_float32(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  if (!out.is_cpu() || out.scalar_type() != at::kFloat || left.scalar_type() != at::kBFloat16) {
    return false;
  }
  const auto a = factor_of(left), b = factor_of(right), c = factor_of(out);
  if (!a || !b || !c || c->transpose == kTransposed) return false;
  const int64_t m = left.size(0), n = right.size(1), k = left.size(1);
  if (!std::ranges::all_of(std::array{m, n, k, a->stride, b->stride, c->stride}, fits))
    return false;
  const auto as_int = [](int64_t number) { return static_cast<int>(number); };
  cblas_gemm_bf16bf16f32(kRowMajor, a->transpose, b->transpose, as_int(m), as_int(n), as_int(k), 1,
                         left.const_data_ptr(), as_int(a->stride), right.const_data_ptr(),
                         as_int(b->stride), 0, out.mutable_data_ptr<float>(), as_int(c->stride));
  return true;
}

}  // namespace

void product_out(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  if (out.scalar_type() == left.scalar_type()) {
    at::Tensor same = out;
    at::mm_out(same, left, right);
    return;
  }
  const bool sums = in_use.load(std::memory_order_relaxed) == WeightGradient::kFloat32;
  if (!sums || !sum_in_float32(out, left, right)) out.copy_(at::mm(left, right));
}

bool has_float32_results() { return &cblas_gemm_bf16bf16f32 != nullptr; }

Status check_weight_gradient(WeightGradient gradient) {
  if (gradient != WeightGradient::kFloat32 || has_float32_results()) return {};
  return base::unsupported(
      "weight gradients are float32 sums of bf16 products, which this libtorch lacks, as it is not "
      "built on "
      "MKL; compute with the libtorch that measured the kernels");
}

void use_weight_gradient(WeightGradient gradient) {
  base::throw_if_error(check_weight_gradient(gradient).at("the plan's kernels"));
  in_use.store(gradient, std::memory_order_relaxed);
}

WeightGradient weight_gradient_in_use() { return in_use.load(std::memory_order_relaxed); }

}  // namespace hanji::compute
