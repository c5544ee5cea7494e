#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hanji/base/simd.h"

namespace hanji::base {

/// The library that multiplies float32 matrices: PyTorch's default BLAS, or oneDNN. kAuto is what a
/// configuration may ask for; a KernelChoice never holds it.
enum class Gemm : uint8_t { kAuto, kMkl, kOneDnn };

/// libtorch's flash kernel, hanji's blocked kernel, which skips blocks above the diagonal, or that with
/// products of bf16 tiles, of bf16 alone. kAuto as in Gemm.
enum class Attention : uint8_t { kAuto, kFlash, kMath, kTiles };

/// How the gradient of a float32 weight comes of bf16 factors: rounded to bf16 by the product and widened, or
/// in float32 as the product sums it. kAuto as in Gemm.
enum class WeightGradient : uint8_t { kAuto, kRounded, kFloat32 };

/// The dtype of activations and matmuls. Parameters stay float32 under kBFloat16.
enum class Precision : uint8_t { kFloat32, kBFloat16, kFloat64 };

/// The largest error that products of float32 may have: kHighest, that of sums in float32; kMedium, that of one
/// product of inputs rounded to bf16 with sums in float32.
enum class Products : uint8_t { kHighest, kMedium };

/// Names in the order of the enumerators, as keys and JSON spell them.
inline constexpr std::array<std::string_view, 3> kGemmNames = {"auto", "mkl", "onednn"};
inline constexpr std::array<std::string_view, 4> kAttentionNames = {"auto", "flash", "math",
                                                                    "tiles"};
inline constexpr std::array<std::string_view, 3> kWeightGradientNames = {"auto", "rounded",
                                                                         "float32"};
inline constexpr std::array<std::string_view, 3> kPrecisionNames = {"float32", "bf16", "float64"};
inline constexpr std::array<std::string_view, 2> kProductsNames = {"highest", "medium"};

constexpr std::string_view name_of(Gemm gemm) { return kGemmNames[static_cast<size_t>(gemm)]; }
constexpr std::string_view name_of(Attention attention) {
  return kAttentionNames[static_cast<size_t>(attention)];
}
constexpr std::string_view name_of(WeightGradient gradient) {
  return kWeightGradientNames[static_cast<size_t>(gradient)];
}
constexpr std::string_view name_of(Precision precision) {
  return kPrecisionNames[static_cast<size_t>(precision)];
}
constexpr std::string_view name_of(Products products) {
  return kProductsNames[static_cast<size_t>(products)];
}

/// The kernels of a run and the measurement that chose them.
struct KernelChoice {
  Gemm gemm = Gemm::kMkl;
  Attention attention = Attention::kMath;
  Precision precision = Precision::kFloat32;
  /// Of one rank, on the model's shapes, in `precision`, all ranks busy.
  double gemm_flops_per_second = 0;
  /// The same; counts the lower triangle only.
  double attention_flops_per_second = 0;
  double gemm_error = 0;  ///< Largest error over the largest result, against float64.
  double attention_error = 0;
  std::string why = {};  ///< One sentence: the rejected kernels, and the difference in time.
  /// Vector instructions of hanji's own kernels; none: not recorded, or computed on GPUs.
  std::optional<Simd> simd = {};
  WeightGradient weight_gradient = WeightGradient::kRounded;  ///< Matters under kBFloat16 alone.
  /// Of float32 matmuls, measured if `precision` is lower than float32; else 0.
  double float32_flops_per_second = 0;
  /// What the products are within: kMedium where compute.products = medium has chosen a path that rounds to bf16.
  Products products = Products::kHighest;
  /// What compute.products = medium chose or why it changes nothing, with errors and rates; empty without it.
  std::string products_why = {};
  bool operator==(const KernelChoice&) const = default;
};

}  // namespace hanji::base
