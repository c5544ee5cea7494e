#include "hanji/parallel/tensor/regions.h"

#include <ATen/ops/cat.h>

#include "hanji/base/status.h"
#include "hanji/comm/linear_map.h"
#include "hanji/parallel/tensor/blocks.h"

namespace hanji::parallel::tensor::internal {
namespace {

at::Tensor same(const at::Tensor& x) { return x; }

/// What the parts along `dim` are when the other side is whole: those given, or this rank's own size
/// everywhere.
Extents extents_like(const at::Tensor& part, int64_t dim, const Axis& axis,
                     const Extents& extents) {
  return extents.empty() ? Extents(axis.degree(), part.size(dim)) : extents;
}

Extents extents_within(const at::Tensor& whole, int64_t dim, const Axis& axis,
                       const Extents& extents) {
  return extents.empty() ? axis.extents_of(whole.size(dim)) : extents;
}

/// Activations are cut along dimensions that count from the last, weights along others.
void refuse_weights(int64_t dim) {
  if (dim < 0) return;
  throw Error(
      base::unsupported("an axis in blocks of features moves no weights; compute whole products "
                        "(one block)"));
}

/// As many equal terms as this rank has partial sums, in the memory of one.
at::Tensor repeated(const at::Tensor& x, const Axis& axis) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), std::ssize(axis.fold().partials));
  return x.unsqueeze(0).expand(sizes);
}

at::Tensor entered_in_blocks(const at::Tensor& x, const Axis& axis) {
  if (axis.degree() == 1) return x.unsqueeze(0);
  return comm::apply_linear(x, {[axis](const at::Tensor& all) { return repeated(all, axis); },
                                [axis](const at::Tensor& g) { return axis.sum_of_blocks(g); }});
}

at::Tensor gathered_in_blocks(const at::Tensor& x, int64_t dim, const Axis& axis,
                              const Extents& each) {
  refuse_weights(dim);
  if (axis.degree() == 1) return x.unsqueeze(0);
  return comm::apply_linear(
      x, {[=](const at::Tensor& part) { return repeated(axis.gather(part, dim, each), axis); },
          [=](const at::Tensor& g) { return axis.scatter_sum_of_blocks(g, dim, each); }});
}

at::Tensor scattered_in_blocks(const at::Tensor& x, int64_t dim, const Axis& axis,
                               const Extents& each) {
  refuse_weights(dim);
  if (axis.degree() == 1) return x.squeeze(0);
  return comm::apply_linear(
      x,
      {[=](const at::Tensor& partials) { return axis.scatter_sum_of_blocks(partials, dim, each); },
       [=](const at::Tensor& g) { return repeated(axis.gather(g, dim, each), axis); }});
}

/// One row for each own block.
at::Tensor for_own_blocks(const at::Tensor& x, const Axis& axis) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), std::ssize(axis.fold().steps));
  return x.unsqueeze(0).expand(sizes);
}

at::Tensor entered_by_blocks_of_rows(const at::Tensor& x, const Axis& axis) {
  return comm::apply_linear(x, {[axis](const at::Tensor& one) { return for_own_blocks(one, axis); },
                                [axis](const at::Tensor& g) { return sum_of_terms(g, axis); }});
}

at::Tensor summed_in_blocks(const at::Tensor& x, const Axis& axis) {
  if (axis.degree() == 1) return x.squeeze(0);
  return comm::apply_linear(
      x, {[axis](const at::Tensor& partials) { return axis.sum_of_blocks(partials); },
          [axis](const at::Tensor& g) { return repeated(g, axis); }});
}

}  // namespace

at::Tensor entered(const at::Tensor& x, const Axis& axis) {
  if (axis.num_blocks() > 1) return entered_in_blocks(x, axis);
  return entered_by_rows(x, axis);
}

at::Tensor entered_by_rows(const at::Tensor& x, const Axis& axis) {
  if (axis.num_blocks() > 1) return entered_by_blocks_of_rows(x, axis);
  if (axis.degree() == 1) return x;
  return comm::apply_linear(x, {same, [axis](const at::Tensor& g) { return axis.sum(g); }});
}

std::vector<at::Tensor> entered_together(const std::vector<at::Tensor>& vectors, const Axis& axis) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& one : vectors) sizes.push_back(one.numel());
  return entered_by_rows(at::cat(vectors), axis).split_with_sizes(sizes, -1);
}

at::Tensor summed(const at::Tensor& x, const Axis& axis) {
  if (axis.num_blocks() > 1) return summed_in_blocks(x, axis);
  if (axis.degree() == 1) return x;
  return comm::apply_linear(x, {[axis](const at::Tensor& terms) { return axis.sum(terms); }, same});
}

at::Tensor summed_rows(const at::Tensor& x, const Axis& axis) {
  return comm::apply_linear(x,
                            {[axis](const at::Tensor& terms) { return sum_of_terms(terms, axis); },
                             [axis](const at::Tensor& g) { return for_own_blocks(g, axis); }});
}

at::Tensor gathered(const at::Tensor& x, int64_t dim, const Axis& axis, const Extents& extents) {
  const Extents each = extents_like(x, dim, axis, extents);
  if (axis.num_blocks() > 1) return gathered_in_blocks(x, dim, axis, each);
  if (axis.degree() == 1) return x;
  return comm::apply_linear(x,
                            {[=](const at::Tensor& part) { return axis.gather(part, dim, each); },
                             [=](const at::Tensor& g) { return axis.scatter_sum(g, dim, each); }});
}

at::Tensor scattered(const at::Tensor& x, int64_t dim, const Axis& axis, const Extents& extents) {
  const Extents each = extents_within(x, dim, axis, extents);
  if (axis.num_blocks() > 1) return scattered_in_blocks(x, dim, axis, each);
  if (axis.degree() == 1) return x;
  return comm::apply_linear(
      x, {[=](const at::Tensor& terms) { return axis.scatter_sum(terms, dim, each); },
          [=](const at::Tensor& g) { return axis.gather(g, dim, each); }});
}

at::Tensor cut(const at::Tensor& x, int64_t dim, const Axis& axis, const Extents& extents) {
  if (axis.degree() == 1) return x;
  const Extents each = extents_within(x, dim, axis, extents);
  return comm::apply_linear(x,
                            {[=](const at::Tensor& all) { return axis.own_part(all, dim, each); },
                             [=](const at::Tensor& g) { return axis.gather(g, dim, each); }});
}

at::Tensor whole(const at::Tensor& x, int64_t dim, const Axis& axis, const Extents& extents) {
  if (axis.degree() == 1) return x;
  const Extents each = extents_like(x, dim, axis, extents);
  return comm::apply_linear(x,
                            {[=](const at::Tensor& part) { return axis.gather(part, dim, each); },
                             [=](const at::Tensor& g) { return axis.own_part(g, dim, each); }});
}

}  // namespace hanji::parallel::tensor::internal
