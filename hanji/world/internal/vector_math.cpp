#include "hanji/world/internal/vector_math.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <mutex>

namespace hanji::world {
namespace {

void call_each(at::ScalarType dtype) {
  const at::Tensor x = at::full({1}, 0.5, at::device(at::kCPU).dtype(dtype));
  using Function = at::Tensor (at::Tensor::*)() const;
  for (const Function function :
       {&at::Tensor::acos, &at::Tensor::asin, &at::Tensor::atan, &at::Tensor::cos, &at::Tensor::erf,
        &at::Tensor::erfc, &at::Tensor::erfinv, &at::Tensor::exp, &at::Tensor::log,
        &at::Tensor::log10, &at::Tensor::log2, &at::Tensor::sin, &at::Tensor::sqrt,
        &at::Tensor::tan, &at::Tensor::tanh, &at::Tensor::trunc}) {
    (x.*function)();
  }
}

}  // namespace

void resolve_vector_math() {
  static std::once_flag once;
  std::call_once(once, [] {
    call_each(at::kFloat);
    call_each(at::kDouble);
  });
}

}  // namespace hanji::world
