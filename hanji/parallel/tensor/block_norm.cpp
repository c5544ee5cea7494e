#include "hanji/parallel/tensor/block_norm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "hanji/layout/unit.h"
#include "hanji/parallel/grad_norm.h"

namespace hanji::parallel::tensor {
namespace {

at::Tensor elements_of_block(const at::Tensor& tensor, int64_t dim,
                             const std::vector<layout::Range>& ranges) {
  std::vector<at::Tensor> pieces;
  for (const layout::Range range : ranges) {
    pieces.push_back(tensor.narrow(dim, range.begin, range.size()));
  }
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces, dim);
}

int64_t elements_in_block(const at::Tensor& tensor, int64_t dim,
                          const std::vector<layout::Range>& ranges) {
  int64_t extent = 0;
  for (const layout::Range range : ranges) extent += range.size();
  return tensor.numel() / tensor.size(dim) * extent;
}

}  // namespace

BlockNorm::BlockNorm(std::vector<NamedParameter> parameters, const layout::Cut& cut,
                     const Axis& axis, NormSharers sharers)
    : axis_(axis),
      order_(feature_blocks({.dim = 0}, axis.num_blocks(), axis)),
      add_up_(std::move(sharers.add_up)) {
  for (NamedParameter& one : parameters) {
    Part& part = parts_.emplace_back(Part{std::move(one.tensor)});
    if (add_up_) part.is_counted = sharers.counted.at(parts_.size() - 1);
    if (!order_) continue;
    const auto placement = layout::placement_of(cut.placements, one.name).or_throw();
    if (!placement.is_cut()) continue;
    const auto& segments = placement.segments;
    const int64_t whole = std::accumulate(segments.begin(), segments.end(), int64_t{0});
    part.dim = placement.dim;
    part.blocks = feature_blocks(placement, whole, axis);
  }
}

void BlockNorm::add(const Part& part, const at::Tensor& gradient, Sums& sums) {
  // Zeros where another rank counts it.
  const auto append = [&](std::vector<double>& all, const auto& piece, int64_t elements) {
    if (!part.is_counted) return all.resize(all.size() + layout::num_blocks(elements));
    const std::vector<double> more = norm_blocks(piece());
    all.insert(all.end(), more.begin(), more.end());
  };
  if (!part.blocks)
    return append(
        sums.back(), [&] { return gradient; }, part.parameter.numel());
  for (size_t i = 0; i < part.blocks->ranges.size(); ++i) {
    const auto& ranges = part.blocks->ranges[i];
    append(
        sums[i], [&] { return elements_of_block(gradient, part.dim, ranges); },
        elements_in_block(part.parameter, part.dim, ranges));
  }
}

void BlockNorm::add_of_sharers(Sums& sums) const {
  std::vector<at::Tensor> lists;
  for (std::vector<double>& list : sums) {
    lists.push_back(at::from_blob(list.data(), {std::ssize(list)}, at::kDouble));
  }
  at::Tensor all = at::cat(lists);
  add_up_(all);
  int64_t begin = 0;
  for (at::Tensor& list : lists) {
    list.copy_(all.narrow(0, begin, list.numel()));
    begin += list.numel();
  }
}

double BlockNorm::of(const std::vector<NamedParameter>& parameters,
                     const std::vector<at::Tensor>& gradients) const {
  Sums sums(1 + (order_ ? order_->ranges.size() : 0));
  for (const Part& part : parts_) {
    const auto found = std::ranges::find_if(
        parameters, [&](const auto& one) { return one.tensor.is_same(part.parameter); });
    add(part, part.is_counted ? gradients.at(found - parameters.begin()) : at::Tensor(), sums);
  }
  if (add_up_) add_of_sharers(sums);
  const double whole = parallel::sum_of_blocks(sums.back());
  if (!order_) return std::sqrt(whole);
  const at::Tensor partials = fold_blocks(
      *order_, {1}, at::kDouble, [&](const std::vector<layout::Range>& ranges, at::Tensor& sum) {
        sum.fill_(parallel::sum_of_blocks(sums[ranges[0].begin]));
      });
  return std::sqrt(axis_.sum_of_blocks(partials).item<double>() + whole);
}

}  // namespace hanji::parallel::tensor
