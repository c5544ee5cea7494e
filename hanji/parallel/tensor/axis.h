#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hanji/layout/range.h"
#include "hanji/schedule/grain_tree.h"
#include "hanji/schedule/operation.h"

namespace hanji::comm {
class Group;
class Work;
}  // namespace hanji::comm
namespace hanji::layout {
struct Placement;
}

namespace hanji::parallel::tensor {

/// Sizes along a cut dimension, one for each rank of an axis.
using Extents = std::vector<int64_t>;

/// What rank `index` of `degree` has of a tensor that lies as `placement` says, each of its segments.
at::Tensor part_of(const at::Tensor& whole, const layout::Placement& placement, int index,
                   int degree);

/// Each rank's sizes of the segments of which its part is made, by segment: of [q | k | v] its columns of each.
using Segments = std::vector<Extents>;

/// A dimension and each rank's size of it.
struct Cut {
  int64_t dim = 0;
  const Extents& extents;
  const Segments* segments = nullptr;  ///< Which the extents add up; null: a part is one range.
};

/// One collective of an axis: what a plan counts.
struct AxisCall {
  schedule::Routine routine = schedule::Routine::kAllReduce;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  at::ScalarType dtype = at::kFloat;
  Extents counts;  ///< Elements: of each rank's part where parts move; one where all have as many.
  int ranks = 1;   ///< Of the axis.
  int blocks = 1;  ///< Of a tree reduction.
  /// Elements that are copied beside, because the parts do not lie one after another.
  int64_t copied = 0;
};

/// The ranks that cut the layers of one model among themselves. Copies share what they have prepared.
///
/// Result  new tensors; the arguments stay. On an axis of one rank every function returns its argument.
/// Order   collectives of the group, in one order on all ranks. Each shape is prepared once
///         (comm::prepare), so the first call of a shape costs one all_gather more.
/// Errors  throws Error(kInvalidArgument) for extents that do not fit the tensor, naming both; else as
///         comm::prepare() and Work::wait().
/// Thread  one at a time.
class Axis {
 public:
  /// One rank.
  Axis();
  explicit Axis(const comm::Group& group);
  /// Rank `rank` of `degree` ranks that are not there: results have their shapes and take their
  /// memory, nothing moves, and `on_call` is given each collective. Counts what a model asks for.
  static Axis silent(int rank, int degree, std::function<void(const AxisCall&)> on_call);

  /// The same ranks for stable bits: features are computed in `blocks` blocks, of which a rank owns whole
  /// ones, and sums over them are taken by the grain tree, so that no bit depends on the degree. 1: whole
  /// products, one term of each rank. An axis in blocks of tokens has those of a sample's rows instead.
  /// Errors  throws Error(kInvalidArgument) for fewer blocks than ranks.
  Axis in_blocks(int blocks) const;

  int degree() const;
  int rank() const;
  int num_blocks() const;

  /// How this rank adds up the terms of its blocks; the blocks are the grains. There are at least two.
  const schedule::Fold& fold() const;

  /// [0, size) cut evenly at multiples of `unit`, or into blocks of such, as layout::part_of.
  Extents extents_of(int64_t size, int64_t unit = 1) const;

  /// Where this rank's part lies in the whole that the extents make up.
  layout::Range own_range(const Extents& extents) const;

  at::Tensor sum(const at::Tensor& terms) const;
  /// The sum of all ranks' blocks, of the partial sums [k, ...] of fold().
  at::Tensor sum_of_blocks(const at::Tensor& partials) const;
  /// This rank's part along `dim` of the tensors of that sum. Cost: an all_to_all of parts of partial sums,
  /// which each rank then adds in the order of the tree.
  at::Tensor scatter_sum_of_blocks(const at::Tensor& partials, int64_t dim,
                                   const Extents& extents) const;
  at::Tensor maximum(const at::Tensor& values) const;
  /// The parts of all ranks, one after another along `dim`. Empty extents: all are like this one.
  at::Tensor gather(const at::Tensor& part, int64_t dim, const Extents& extents = {}) const;
  /// This rank's part along `dim` of the sum of all ranks' terms. Empty extents: cut evenly.
  at::Tensor scatter_sum(const at::Tensor& terms, int64_t dim, const Extents& extents = {}) const;
  /// This rank's part of what all ranks have. Empty extents: cut evenly.
  at::Tensor own_part(const at::Tensor& whole, int64_t dim, const Extents& extents = {}) const;
  /// Moves the cut: a part along `from`, whole along `to`, becomes one along `to`, whole along `from`.
  at::Tensor transpose(const at::Tensor& part, Cut from, Cut to) const;
  /// What the next rank of the ring has, while this one's goes to the rank before. `elements` of each
  /// rank's; the result is `sizes`, those of the next rank's.
  at::Tensor from_next(const at::Tensor& mine, at::IntArrayRef sizes,
                       const Extents& elements) const;
  /// The same under way. Calls that are open at once have different lanes.
  struct Passing {
    at::Tensor mine, next;
    std::shared_ptr<comm::Work> work = {};  ///< Null: it is there.
    at::Tensor wait() const;
  };
  Passing begin_from_next(const at::Tensor& mine, at::IntArrayRef sizes, const Extents& elements,
                          int lane) const;

 private:
  struct Calls;
  struct Blocks;
  explicit Axis(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

  std::shared_ptr<Calls> calls_;    ///< Null: one rank.
  std::shared_ptr<Blocks> blocks_;  ///< Null: whole products.
};

}  // namespace hanji::parallel::tensor
