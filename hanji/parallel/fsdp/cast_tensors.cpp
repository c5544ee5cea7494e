#include "hanji/parallel/fsdp/cast_tensors.h"

#include "hanji/base/status.h"

namespace hanji::parallel {

void cast_tensor(at::Tensor& tensor, at::ScalarType dtype) {
  if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(dtype);
}

void refuse_to_cast_result() {
  throw Error(base::unsupported(
      "precision.output_dtype: forward() gives a type whose tensors cannot be found; write "
      "void cast_tensors(T&, at::ScalarType) beside the type, or leave the option out"));
}

}  // namespace hanji::parallel
