#include "hanji/compute/embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "hanji/base/status.h"

namespace hanji::compute {

at::Tensor embed(const at::Tensor& tokens, const Weight& table, const Weight& positions) {
  const int64_t length = tokens.size(1);
  if (length > positions.value.size(0)) {
    throw Error(base::invalid_argument(
        "a sample has " + std::to_string(length) + " tokens, the model's block is " +
        std::to_string(positions.value.size(0)) + "; cut the sample or build a longer model"));
  }
  return at::embedding(table.value, tokens) + positions.value.slice(0, 0, length);
}

}  // namespace hanji::compute
