#include "hanji/parallel/tensor/block_norm.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>

#include "hanji/parallel/grad_norm.h"

namespace hanji::parallel::tensor {
namespace {

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

at::Tensor elements_of_block(const at::Tensor& gradient, int64_t dim,
                             const std::vector<layout::Range>& ranges) {
  std::vector<at::Tensor> pieces;
  for (const layout::Range range : ranges) {
    pieces.push_back(gradient.narrow(dim, range.begin, range.size()));
  }
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces, dim);
}

}  // namespace

BlockNorm::BlockNorm(const std::vector<NamedParameter>& parameters, const layout::Cut& cut,
                     const Axis& axis)
    : axis_(axis), order_(feature_blocks({.dim = 0}, axis.num_blocks(), axis)) {
  for (const NamedParameter& one : parameters) {
    const auto placement = layout::placement_of(cut.placements, one.name).or_throw();
    parts_.push_back({placement.dim, nullptr});
    if (!placement.is_cut()) continue;
    const auto& segments = placement.segments;
    const int64_t whole = std::accumulate(segments.begin(), segments.end(), int64_t{0});
    parts_.back().blocks = feature_blocks(placement, whole, axis);
  }
}

double BlockNorm::sum_of_block(const std::vector<at::Tensor>& gradients, size_t block) const {
  std::vector<double> sums;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const auto& [dim, blocks] = parts_[i];
    if (!blocks) continue;
    append(sums, norm_blocks(elements_of_block(gradients[i], dim, blocks->ranges[block])));
  }
  return parallel::sum_of_blocks(sums);
}

double BlockNorm::of(const std::vector<at::Tensor>& gradients) const {
  std::vector<double> whole;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!parts_[i].blocks) append(whole, norm_blocks(gradients[i]));
  }
  const at::Tensor partials = fold_blocks(
      *order_, {1}, at::kDouble, [&](const std::vector<layout::Range>& ranges, at::Tensor& sum) {
        sum.fill_(sum_of_block(gradients, static_cast<size_t>(ranges[0].begin)));
      });
  return std::sqrt(axis_.sum_of_blocks(partials).item<double>() + parallel::sum_of_blocks(whole));
}

}  // namespace hanji::parallel::tensor
