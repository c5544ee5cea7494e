#pragma once

#include <functional>
#include <optional>

#include "hanji/base/status.h"
#include "hanji/compute/kernels.h"

namespace hanji::compute {

/// The products of one layer and micro-batch.
struct Shapes {
  int64_t batch = 1;
  int64_t block = 64;
  int64_t width = 128;
  int64_t heads = 4;
};

struct MeasureOptions {
  Shapes shapes;
  Dtype dtype = Dtype::kFloat32;
  int threads = 1;                     ///< Of libtorch, as a rank will have them.
  std::optional<Gemm> gemm;            ///< Asked for: measured, and taken whatever the others do.
  std::optional<Attention> attention;  ///< The same.
  /// Chosen by an earlier measurement: other kernels have other bits, so each of the two stays
  /// unless another path takes less than kClearlyFaster of its time.
  std::optional<KernelChoice> before = {};
};

inline constexpr double kClearlyFaster = 0.9;

/// How one path does: name, seconds, rate and error; and what the operations between the products
/// cost. Tests bring their own.
struct Measurer {
  std::function<Candidate(Gemm, const MeasureOptions&)> gemm;
  std::function<Candidate(Attention, Gemm, const MeasureOptions&)> attention;
  std::function<Overheads(Gemm, const MeasureOptions&)> overheads;
};

/// Runs the paths on so many threads as the options say: best of several repetitions, error against
/// float64. The process's switches are as before when it returns.
Measurer real_measurer();

/// Chooses the fastest path that is accurate enough for its dtype. A path whose error exceeds that
/// of `width` roundings of the dtype is not offered, however fast: float32 through bf16 loses.
/// Beside a dtype of less precision than float32 it measures float32's products: who gives up
/// precision for speed can be told whether there is any.
///
/// Cost    under 0.4 s for sizes up to width 768 on one core of today's.
/// Errors  kUnsupported when a path that was asked for is too inaccurate, or none is left; as
///         base::usable_simd().
Result<KernelChoice> measure(const MeasureOptions& options,
                             const Measurer& measurer = real_measurer());

/// The largest error, over the largest entry, that `dtype` may have: width * half its epsilon.
/// Source  Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.5.
double allowed_error(Dtype dtype, int64_t width);

}  // namespace hanji::compute
