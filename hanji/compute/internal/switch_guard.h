#pragma once

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <string>

#include "hanji/compute/internal/gemm_switch.h"

namespace hanji::compute {

inline std::string word_of(at::Float32MatmulPrecision precision) {
  switch (precision) {
    case at::Float32MatmulPrecision::HIGHEST: return "highest";
    case at::Float32MatmulPrecision::HIGH: return "high";
    case at::Float32MatmulPrecision::MEDIUM: return "medium";
  }
  return "highest";
}

/// Restores what libtorch multiplies float32 with, and on how many threads.
class SwitchGuard {
 public:
  SwitchGuard(base::Gemm gemm, int threads)
      : precision_(at::globalContext().float32MatmulPrecision()), threads_(at::get_num_threads()) {
    at::globalContext().setFloat32MatmulPrecision(precision_of(gemm));
    at::set_num_threads(threads);
  }
  ~SwitchGuard() {
    at::globalContext().setFloat32MatmulPrecision(word_of(precision_));
    at::set_num_threads(threads_);
  }
  SwitchGuard(const SwitchGuard&) = delete;
  SwitchGuard& operator=(const SwitchGuard&) = delete;

 private:
  at::Float32MatmulPrecision precision_;
  int threads_;
};

}  // namespace hanji::compute
