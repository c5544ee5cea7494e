#include "hanji/parallel/fsdp/sequential.h"

#include <utility>

#include "hanji/parallel/fsdp/unit.h"

namespace hanji::parallel {

at::Tensor SequentialImpl::forward(at::Tensor input) {
  for (auto& module : *this) {
    UnitCall call(*module.ptr());
    at::Tensor output = module.forward<at::Tensor>(std::move(input));
    call.leave({output});
    input = std::move(output);
  }
  return input;
}

}  // namespace hanji::parallel
