#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hanji/base/kernel_choice.h"
#include "hanji/base/status.h"

namespace hanji::compute {

using base::Attention;
using base::Gemm;
using base::KernelChoice;
using base::Precision;
using base::Products;
using base::WeightGradient;

/// One kernel as it was measured.
struct Candidate {
  std::string name;      ///< "gemm.mkl", "attention.flash", ...
  double seconds = 0;    ///< Best of the repetitions, forward and backward of the probe.
  double rate = 0;       ///< Floating operations per second.
  double error = 0;      ///< Largest difference from float64, over the largest entry.
  bool accepted = true;  ///< False: too inaccurate to be offered for its precision and tolerance.
  Products within = Products::kHighest;  ///< The tolerance of its error; kMedium: that or none.
  /// Two calls on the same values, which lie elsewhere, give the same bits. Looked at for kMedium alone.
  bool repeats = true;
};

/// The choice, and every kernel that was measured for it.
struct MeasuredKernels {
  KernelChoice choice;
  std::vector<Candidate> candidates;
};

/// The products of one layer and micro-batch.
struct Shapes {
  int64_t batch = 1;
  int64_t block = 64;
  int64_t width = 128;
  int64_t heads = 4;
  bool operator==(const Shapes&) const = default;
};

/// Memory of a measurement, about, and its floating operations in one run of the products.
inline constexpr int64_t kMaxMeasuredBytes = int64_t{256} << 20;
inline constexpr double kMaxMeasuredFlops = 2e10;

/// What is measured in place of `shapes`: the same or, above one of those limits, fewer features of heads
/// as wide, samples and rows. It has the rates, and above all the choice, of the whole.
Shapes within_limits(Shapes shapes);

struct MeasureOptions {
  Shapes shapes;
  Precision precision = Precision::kFloat32;
  Products products = Products::kHighest;  ///< The tolerance of float32 products.
  int threads = 1;                         ///< Of libtorch, as a rank will have them.
  Gemm gemm = Gemm::kAuto;                 ///< Any other value: only it is measured, and chosen.
  Attention attention = Attention::kAuto;  ///< The same.
  /// Chosen by an earlier measurement: other kernels have other bits, so each of them stays
  /// unless another path takes less than kClearlyFaster of its time.
  std::optional<KernelChoice> before = {};
};

inline constexpr double kClearlyFaster = 0.9;

/// How one path does: name, seconds, rate, error and whether it repeats its bits. Tests bring their own.
struct Measurer {
  std::function<Candidate(Gemm, const MeasureOptions&)> gemm;
  std::function<Candidate(Attention, Gemm, const MeasureOptions&)> attention;
  std::function<Status(Attention, Precision)> check_attention = {};  ///< Empty: there are no tiles.
  /// Empty: there is one way alone, kRounded.
  std::function<Candidate(WeightGradient, Gemm, const MeasureOptions&)> weight_gradient = {};
};

/// Runs the paths on so many threads as the options say: best of several repetitions, error against
/// float64. The process's switches are as before when it returns.
Measurer real_measurer();

/// The error of float32 products of kSmallShapes by this thread.
double error_of_small_products(Gemm gemm);
inline constexpr Shapes kSmallShapes = {.batch = 1, .block = 64, .width = 128, .heads = 2};

/// Chooses the fastest path that is accurate enough for its precision, by shapes within_limits(). A path
/// whose error exceeds that of its roundings is not offered, however fast: float32 through bf16 loses.
/// With `products` kMedium float32 through bf16 is offered if it is within medium_error() and repeats its
/// bits, and is chosen where it takes less than kClearlyFaster of what the fastest of kHighest takes.
/// For a precision below float32 it also measures float32 matmuls, so that the plan can show
/// whether the lower precision is faster; and for bf16 both ways to a weight's gradient, of which both are
/// accurate enough: the faster one.
///
/// Cost    under 0.5 s for sizes up to width 768 on one core of today's.
/// Errors  kUnsupported when a path that was asked for is too inaccurate, or none is left; as
///         base::usable_simd().
Result<MeasuredKernels> measure(const MeasureOptions& options,
                                const Measurer& measurer = real_measurer());

/// How many roundings of its precision an entry of the products may be off: one for each of the terms that
/// it adds up.
double roundings_of_products(const Shapes& shapes);

/// The same of causal attention over entries in [-1, 1]. With d features a head, a score is off by d + 2
/// roundings of at most sqrt(d), and so are its exponential and the sum of all; block terms are added up
/// twice. Eight are for the exponential and the division.
double roundings_of_attention(const Shapes& shapes);

/// The same of attention in tiles, in roundings of bf16. Queries, keys and values round with their biases, so
/// that a score of at most sqrt(d) is off by 2 sqrt(d) roundings, its exponential and the sum of all by as
/// much each. Weights, values and the result round once each. Sums are of float32.
double roundings_of_tiles(const Shapes& shapes);

/// The largest error, over the largest entry, that `precision` may have: roundings * half its epsilon.
/// Source  Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.5.
double allowed_error(Precision precision, double roundings);

/// The largest error, over the largest entry, of float32 products of inputs rounded to bf16, summed in float32.
/// Rounding to nearest moves an input by at most u = 2^-8 of itself, in the mean square by u / sqrt(3), and a product
/// of two by sqrt(2/3) u. Errors and entries are sums of as many such terms, so that the largest of both are to each
/// other as the mean squares: 0.82 u. Allowed is u, for each of `products` that an entry goes through one after
/// another, and the roundings of the sums besides; inputs that are cut off are 1.4 u off.
double medium_error(double products, double roundings);

/// Those of causal attention over entries in [-1, 1]: with d features a head, products of rounded inputs move a score
/// of at most sqrt(d) by so much of that, its exponential and the sum of all likewise, and the product with the
/// values is one more.
double products_of_attention(const Shapes& shapes);

/// Refuses a choice whose float32 products are within another tolerance on this processor than where they were
/// measured: a run that is resumed, or a rank of another host. Looks at the error of small products.
///
/// Cost    some milliseconds with oneDNN, else nothing.
/// Errors  kUnsupported.
Status check_products(const KernelChoice& choice,
                      const std::function<double(Gemm)>& error_of = error_of_small_products);

}  // namespace hanji::compute
