#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/parallel/axial/triangle.h"

/// Two triangle updates of a pair tensor, outgoing then incoming, by three schedules with the same kernels: hanji's,
/// the classic one of AlphaFold's distributed implementations, and the two-dimensional one of newer systems.
namespace hanji::bench {

using parallel::axial::Axis;
using parallel::axial::Edges;

/// Of one update (AlphaFold 2, algorithms 11 and 12): projections [C, C], of the operands, their gates and the output.
struct Weights {
  at::Tensor a, a_gate, b, b_gate, gate, out;
  std::vector<at::Tensor> all() const { return {a, a_gate, b, b_gate, gate, out}; }
};

/// Fixed values on every rank, that require gradients.
std::vector<Weights> make_weights(int64_t channels, at::ScalarType dtype);

/// [1, N, N, C] of fixed values.
at::Tensor fixed_pairs(int64_t residues, int64_t channels, at::ScalarType dtype, double factor);

/// How the ranks of a group share out the rows of a pair tensor, or its rows and columns, and what they exchange.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual std::string name() const = 0;
  /// This rank's part of a whole tensor.
  virtual at::Tensor part(const at::Tensor& whole) const = 0;
  /// z + its update, of parts.
  virtual at::Tensor update(const at::Tensor& z, const Weights& weights, Edges edges) const = 0;
};

/// hanji's own: rows, and triangle_product() by one of its ways.
class Hanji : public Schedule {
 public:
  Hanji(Axis axis, layout::TriangleWay way) : axis_(std::move(axis)), way_(way) {}
  std::string name() const override;
  at::Tensor part(const at::Tensor& whole) const override;
  at::Tensor update(const at::Tensor& z, const Weights& weights, Edges edges) const override;

 private:
  Axis axis_;
  layout::TriangleWay way_;
};

/// Rows; incoming edges on columns, to which the pairs turn and back. One operand is gathered, and its gradient is an
/// all_reduce of which each rank keeps its slice.
/// Source  NVIDIA's MLPerf HPC 3.0 OpenFold, dynamic_axial_parallelism.py; FastFold, arXiv 2203.00854.
class Classic : public Schedule {
 public:
  explicit Classic(Axis axis) : axis_(std::move(axis)) {}
  std::string name() const override { return "classic"; }
  at::Tensor part(const at::Tensor& whole) const override;
  at::Tensor update(const at::Tensor& z, const Weights& weights, Edges edges) const override;

 private:
  at::Tensor gathered(const at::Tensor& x, int64_t dim, int64_t size) const;
  Axis axis_;
};

/// Blocks of rows and columns on a square grid of ranks; products by Cannon's algorithm, their gradients by two more.
/// A rank's first message brings a block where it is multiplied first, transposed where the product needs that.
/// Source  NVIDIA's Fold-CP, arXiv 2603.14806; Cannon, A Cellular Computer to Implement the Kalman Filter Algorithm,
///         1969.
class Grid : public Schedule {
 public:
  /// Order   the group has side^2 ranks, and residues are a multiple of side.
  Grid(comm::Group group, int side)
      : group_(std::move(group)), side_(side), sent_(std::make_shared<int64_t>(0)) {}
  std::string name() const override { return "two-dimensional"; }
  at::Tensor part(const at::Tensor& whole) const override;
  at::Tensor update(const at::Tensor& z, const Weights& weights, Edges edges) const override;

  /// Blocks that this rank has sent so far.
  int64_t sent() const { return *sent_; }
  /// Blocks that all ranks of side^2 send to others in both updates, forward and backward: the messages of
  /// update(), counted without ranks.
  static int64_t sent_blocks(int side);

 private:
  comm::Group group_;
  int side_;
  std::shared_ptr<int64_t> sent_;
};

}  // namespace hanji::bench
