#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/simd.h"
#include "hanji/base/status.h"

namespace hanji::compute {

/// Which library multiplies fp32 matrices: the one PyTorch picks by itself, or oneDNN.
enum class Gemm : uint8_t { kMkl, kOneDnn };

/// libtorch's flash kernel, or ours, which multiplies blocks and skips those above the diagonal.
enum class Attention : uint8_t { kFlash, kMath };

/// What activations and products are computed in. Parameters stay fp32 under kBFloat16.
enum class Dtype : uint8_t { kFloat32, kBFloat16, kFloat64 };

inline constexpr std::array kGemms{Gemm::kMkl, Gemm::kOneDnn};
inline constexpr std::array kAttentions{Attention::kFlash, Attention::kMath};

std::string_view name_of(Gemm gemm);            ///< "mkl", "onednn"
std::string_view name_of(Attention attention);  ///< "flash", "math"
std::string_view name_of(Dtype dtype);          ///< "float32", "bf16", "float64"

/// The value of that name.
///
Result<Gemm> parse_gemm(std::string_view name);
Result<Attention> parse_attention(std::string_view name);
Result<Dtype> parse_dtype(std::string_view name);

/// One path as it was measured.
struct Candidate {
  std::string name;      ///< "gemm.mkl", "attention.flash", ...
  double seconds = 0;    ///< Best of the repetitions, forward and backward of the probe.
  double rate = 0;       ///< Floating operations per second.
  double error = 0;      ///< Largest difference from float64, over the largest entry.
  bool accepted = true;  ///< False: too inaccurate to be offered for its dtype.
};

/// What a step costs beside its products and attention.
struct Overheads {
  /// One operation through libtorch's dispatcher and autograd, forward or backward.
  double seconds_per_operation = 0;
  /// Element-wise kernels with these threads on tensors in the caches: bytes read plus written, as
  /// plan/predict.cpp counts them.
  double elementwise_bytes_per_second = 0;
};

/// Which kernels a run uses, and why. Recorded in the plan; ranks, resume and verify use it.
struct KernelChoice {
  Gemm gemm = Gemm::kMkl;
  Attention attention = Attention::kMath;
  Dtype dtype = Dtype::kFloat32;
  std::optional<base::Simd> simd;         ///< Of our own kernels; nothing: not recorded.
  double gemm_flops_per_second = 0;       ///< Of the chosen path in the chosen dtype.
  double attention_flops_per_second = 0;  ///< The same; counts the lower triangle only.
  double gemm_error = 0;
  double attention_error = 0;
  double float32_flops_per_second =
      0;                             ///< Of float32's products, beside a dtype of less precision.
  double seconds_per_operation = 0;  ///< As Overheads.
  double elementwise_bytes_per_second = 0;  ///< As Overheads.
  std::vector<Candidate> candidates;
  std::string why;
};

std::string to_json(const KernelChoice& choice);
Result<KernelChoice> choice_from_json(std::string_view text);

}  // namespace hanji::compute
