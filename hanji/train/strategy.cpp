#include "hanji/train/strategy.h"

#include <ATen/ops/full.h>

#include <cmath>

#include "hanji/comm/host_values.h"
#include "hanji/parallel/grad_norm.h"

namespace hanji::train {

bool is_counted(const layout::Cut& cut, std::string_view parameter) {
  return cut.index == 0 || layout::placement_of(cut.placements, parameter).or_throw().is_cut();
}

double norm_of_pieces(const std::vector<at::Tensor>& pieces, const comm::Group& group) {
  double mine = 0;
  for (const at::Tensor& piece : pieces) {
    if (!piece.defined()) continue;
    for (const double squares : parallel::norm_blocks(piece)) mine += squares;
  }
  at::Tensor sum = at::full({1}, mine, at::kDouble);
  comm::all_reduce_on_host(sum, group, {.label = "norm"});
  return std::sqrt(sum.item<double>());
}

}  // namespace hanji::train
