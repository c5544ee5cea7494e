#include "hanji/compute/embedding.h"

#include <ATen/ATen.h>

namespace hanji::compute {

at::Tensor embed(const at::Tensor& tokens, const Weight& table, const Weight& positions) {
  return at::embedding(table.value, tokens) + positions.value.slice(0, 0, tokens.size(1));
}

}  // namespace hanji::compute
