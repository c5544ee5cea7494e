#include "hanji/parallel/fsdp/sequential.h"

#include <utility>

#include "hanji/parallel/fsdp/unit.h"

namespace hanji::parallel {

at::Tensor SequentialImpl::forward(at::Tensor input) {
  UnitCall all(*this);
  cast_result(input, all.casts().inputs);
  for (auto& module : *this) {
    UnitCall call(*module.ptr());
    cast_result(input, call.casts().inputs);
    at::Tensor output = module.forward<at::Tensor>(std::move(input));
    call.leave({output});
    input = std::move(output);
  }
  all.leave({input});
  cast_result(input, all.casts().outputs);
  return input;
}

}  // namespace hanji::parallel
