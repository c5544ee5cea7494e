#include "hanji/train/kernel_choice.h"

namespace hanji::train {
namespace {

// Both sides list their values in one order; the asserts hold them to it.
template <class To, class From>
constexpr To same(From value, int offset = 0) {
  return static_cast<To>(static_cast<int>(value) + offset);
}

static_assert(same<plan::Precision>(compute::Dtype::kFloat64) == plan::Precision::kFloat64);
static_assert(same<plan::Precision>(compute::Dtype::kBFloat16) == plan::Precision::kBFloat16);
static_assert(same<plan::Gemm>(compute::Gemm::kOneDnn, 1) == plan::Gemm::kOneDnn);
static_assert(same<plan::Attention>(compute::Attention::kMath, 1) == plan::Attention::kMath);

}  // namespace

plan::KernelChoice to_plan(const compute::KernelChoice& choice) {
  return {.gemm = same<plan::Gemm>(choice.gemm, 1),
          .attention = same<plan::Attention>(choice.attention, 1),
          .precision = same<plan::Precision>(choice.dtype),
          .gemm_flops_per_second = choice.gemm_flops_per_second,
          .attention_flops_per_second = choice.attention_flops_per_second,
          .gemm_error = choice.gemm_error,
          .attention_error = choice.attention_error,
          .why = choice.why,
          .simd = choice.simd,
          .float32_flops_per_second = choice.float32_flops_per_second,
          .seconds_per_operation = choice.seconds_per_operation,
          .elementwise_bytes_per_second = choice.elementwise_bytes_per_second};
}

compute::KernelChoice to_compute(const plan::KernelChoice& choice) {
  compute::KernelChoice out;
  out.gemm = same<compute::Gemm>(choice.gemm, -1);
  out.attention = same<compute::Attention>(choice.attention, -1);
  out.dtype = same<compute::Dtype>(choice.precision);
  out.simd = choice.simd;
  out.float32_flops_per_second = choice.float32_flops_per_second;
  out.gemm_flops_per_second = choice.gemm_flops_per_second;
  out.gemm_error = choice.gemm_error;
  out.attention_flops_per_second = choice.attention_flops_per_second;
  out.attention_error = choice.attention_error;
  out.why = choice.why;
  out.seconds_per_operation = choice.seconds_per_operation;
  out.elementwise_bytes_per_second = choice.elementwise_bytes_per_second;
  return out;
}

}  // namespace hanji::train
