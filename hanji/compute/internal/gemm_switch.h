#pragma once

#include <string>

#include "hanji/base/kernel_choice.h"

namespace hanji::compute {

/// libtorch's word for the path: "highest" stays with the BLAS it was built on, "medium" lets
/// oneDNN multiply, which on some processors rounds to bf16: measure() looks at its error.
inline std::string precision_of(base::Gemm gemm) {
  return gemm == base::Gemm::kOneDnn ? "medium" : "highest";
}

}  // namespace hanji::compute
