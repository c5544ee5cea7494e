#include "hanji/parallel/axial/row_blocks.h"

#include <ATen/ATen.h>

#include "hanji/comm/linear_map.h"
#include "hanji/layout/placement.h"
#include "hanji/parallel/tensor/blocks.h"

namespace hanji::parallel::axial {
namespace {

using tensor::at_a_line;
using tensor::FeatureBlocksPtr;

/// This rank's blocks, each an element, and the order of their sums.
FeatureBlocksPtr block_order(const Axis& axis) {
  return tensor::feature_blocks({.dim = 0}, axis.num_blocks(), axis);
}

/// The partial sums of terms [own blocks, ...].
at::Tensor folded(const at::Tensor& terms, const FeatureBlocksPtr& order) {
  return tensor::fold_blocks(*order, terms.sizes().slice(1), terms.options(),
                             [&](const std::vector<layout::Range>& block, at::Tensor& sum) {
                               sum.copy_(terms[block[0].begin]);
                             });
}

at::Tensor repeated(const at::Tensor& x, size_t times) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(times));
  return x.unsqueeze(0).expand(sizes);
}

}  // namespace

RowBlocks own_blocks(const Axis& axis, const Extents& extents) {
  const layout::Range own = axis.own_range(extents);
  if (axis.num_blocks() == 1) return {{own}};
  int64_t size = 0;
  for (const int64_t extent : extents) size += extent;
  RowBlocks blocks{.ranges = {}, .are_alone = true};
  int64_t begin = own.begin;
  for (const int64_t rows : tensor::own_block_sizes(size, axis)) {
    blocks.ranges.push_back({begin, begin + rows});
    begin += rows;
  }
  return blocks;
}

std::vector<at::Tensor> internal::split(const at::Tensor& x, int64_t dim, const RowBlocks& blocks) {
  if (!blocks.are_alone) return {x};
  Extents sizes;
  for (const layout::Range range : blocks.ranges) sizes.push_back(range.size());
  std::vector<at::Tensor> parts = x.split_with_sizes(sizes, dim);
  for (at::Tensor& part : parts) part = at_a_line(part);
  return parts;
}

at::Tensor internal::join(std::vector<at::Tensor> parts, int64_t dim, const RowBlocks& blocks) {
  if (blocks.are_alone) {
    const auto same = [](const at::Tensor& x) { return x; };
    for (at::Tensor& part : parts) part = comm::apply_linear(part, {same, at_a_line});
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, dim);
}

std::vector<at::Tensor> internal::gathered_for_blocks(const at::Tensor& x, int64_t dim,
                                                      const Axis& axis, const Extents& extents) {
  if (axis.num_blocks() == 1) return {tensor::internal::gathered(x, dim, axis, extents)};
  const FeatureBlocksPtr order = block_order(axis);
  return comm::apply_linear(
             x, {[=](const at::Tensor& part) {
                   return repeated(axis.gather(part, dim, extents), order->ranges.size());
                 },
                 [=](const at::Tensor& terms) {
                   return axis.scatter_sum_of_blocks(folded(terms, order), dim, extents);
                 }})
      .unbind(0);
}

std::vector<std::vector<at::Tensor>> parameters_of_blocks(const std::vector<at::Tensor>& parameters,
                                                          const Axis& axis) {
  if (axis.num_blocks() == 1) return {parameters};
  std::vector<tensor::Parameter<tensor::Replicated>> flat;
  for (const at::Tensor& one : parameters) flat.push_back({{one.reshape({-1}), {}}});
  const auto entered = tensor::enter(flat, axis);
  std::vector<std::vector<at::Tensor>> of_blocks(axis.fold().steps.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<at::Tensor> copies = entered[i].weight.value.unbind(0);
    for (size_t block = 0; block < of_blocks.size(); ++block) {
      of_blocks[block].push_back(copies[block].view(parameters[i].sizes()));
    }
  }
  return of_blocks;
}

at::Tensor sum_of_blocks(const std::vector<at::Tensor>& terms, const Axis& axis) {
  if (axis.num_blocks() == 1) return terms[0];
  return tensor::internal::summed_rows(at::stack(terms), axis);
}

}  // namespace hanji::parallel::axial
