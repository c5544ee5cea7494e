#include "axial_triangles.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <array>
#include <cmath>
#include <utility>

#include "hanji/comm/linear_map.h"
#include "hanji/comm/message.h"

namespace hanji::bench {
namespace {

using parallel::axial::Extents;
using parallel::axial::extents_on;
using parallel::axial::Rows;
using parallel::axial::Typed;

at::Tensor normed(const at::Tensor& x) { return at::layer_norm(x, {x.size(-1)}); }

at::Tensor edges_of(const at::Tensor& x, const at::Tensor& project, const at::Tensor& gate) {
  return at::sigmoid(at::linear(x, gate)) * at::linear(x, project);
}

at::Tensor updated(const at::Tensor& z, const at::Tensor& x, const at::Tensor& product,
                   const Weights& weights) {
  return z + at::sigmoid(at::linear(x, weights.gate)) * at::linear(normed(product), weights.out);
}

at::Tensor channels_first(const at::Tensor& x) { return x.permute({0, 3, 1, 2}); }
at::Tensor channels_last(const at::Tensor& x) { return x.permute({0, 2, 3, 1}); }

/// One operand of a block product, transposed or not.
struct Operand {
  at::Tensor block;  ///< [1, n, n, C]
  bool transposed = false;
};

int next(int index, int by, int side) { return ((index + by) % side + side) % side; }

/// Which rank a block goes to, and which one's comes here.
struct Message {
  int to = 0, from = 0;
};

/// Places of blocks in Cannon's algorithm: in its first step rank (i, j) multiplies blocks (i, i + j) of the left operand
/// and (i + j, j) of the right one.
class Places {
 public:
  Places(int side, int rank) : side_(side), row_(rank / side), column_(rank % side) {}

  Message first_left(bool transposed) const {
    const int k = next(row_, column_, side_);
    const int from = transposed ? at(k, row_) : at(row_, k);
    const int i = transposed ? column_ : row_, mine = transposed ? row_ : column_;
    return {at(i, next(mine, -i, side_)), from};
  }
  Message first_right(bool transposed) const {
    const int k = next(row_, column_, side_);
    const int from = transposed ? at(column_, k) : at(k, column_);
    const int j = transposed ? row_ : column_, mine = transposed ? column_ : row_;
    return {at(next(mine, -j, side_), j), from};
  }
  Message next_left() const {
    return {at(row_, next(column_, -1, side_)), at(row_, next(column_, 1, side_))};
  }
  Message next_right() const {
    return {at(next(row_, -1, side_), column_), at(next(row_, 1, side_), column_)};
  }

 private:
  int at(int row, int column) const { return row * side_ + column; }
  int side_, row_, column_;
};

/// Each product of both updates: whether its operands are transposed. Outgoing: A B', and backward G B and G' A;
/// incoming: A' B, and backward B G' and A G.
constexpr std::array<std::pair<bool, bool>, 6> kProducts = {
    {{false, true}, {false, false}, {true, false}, {true, false}, {false, true}, {false, false}}};

struct GridHolder : torch::CustomClassHolder {
  GridHolder(comm::Group its_group, int its_side, Edges its_edges, std::shared_ptr<int64_t> count)
      : group(std::move(its_group)), side(its_side), edges(its_edges), sent(std::move(count)) {}

  at::Tensor moved(const at::Tensor& block, Message message) const {
    if (message.to == group.rank()) return block;
    ++*sent;
    at::Tensor taken = at::empty_like(block);
    comm::Work arrives = comm::recv(taken, message.from, group);
    comm::send(block, message.to, group).wait();
    arrives.wait();
    return taken;
  }

  at::Tensor product(const Operand& left, const Operand& right) const {
    const Places places(side, group.rank());
    at::Tensor x = moved(left.block.detach().contiguous(), places.first_left(left.transposed));
    at::Tensor y = moved(right.block.detach().contiguous(), places.first_right(right.transposed));
    at::Tensor sum;
    for (int step = 0;; ++step) {
      const at::Tensor a = channels_first(x), b = channels_first(y);
      const at::Tensor term = at::matmul(left.transposed ? a.transpose(-1, -2) : a,
                                         right.transposed ? b.transpose(-1, -2) : b);
      sum = sum.defined() ? sum.add_(term) : term;
      if (step + 1 == side) return channels_last(sum);
      x = moved(x, places.next_left());
      y = moved(y, places.next_right());
    }
  }

  comm::Group group;
  int side;
  Edges edges;
  std::shared_ptr<int64_t> sent;
};

struct GridProduct : torch::autograd::Function<GridProduct> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& a,
                            const at::Tensor& b, const c10::intrusive_ptr<GridHolder>& grid) {
    context->save_for_backward({a, b});
    context->saved_data["grid"] = c10::IValue::make_capsule(grid);
    const bool outgoing = grid->edges == Edges::kOutgoing;
    return grid->product({a.detach(), !outgoing}, {b.detach(), outgoing});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto capsule = context->saved_data["grid"].toCapsule();
    const auto& grid = static_cast<const GridHolder&>(*capsule);
    const auto saved = context->get_saved_variables();
    const at::Tensor &g = gradients[0], &a = saved[0], &b = saved[1];
    if (grid.edges == Edges::kOutgoing) {
      return {grid.product({g}, {b}), grid.product({g, true}, {a}), {}};
    }
    return {grid.product({b}, {g, true}), grid.product({a}, {g}), {}};
  }
};

}  // namespace

std::vector<Weights> make_weights(int64_t channels, at::ScalarType dtype) {
  int64_t number = 0;
  const auto make = [&] {
    const at::Tensor place = at::arange(channels * channels, at::kDouble) + 977 * ++number;
    return ((place * 0.7).sin() / std::sqrt(static_cast<double>(channels)))
        .view({channels, channels})
        .to(dtype)
        .requires_grad_();
  };
  std::vector<Weights> both;
  for (int update = 0; update < 2; ++update) {
    both.push_back({make(), make(), make(), make(), make(), make()});
  }
  return both;
}

at::Tensor fixed_pairs(int64_t residues, int64_t channels, at::ScalarType dtype, double factor) {
  return (at::arange(residues * residues * channels, at::kDouble) * factor)
      .sin()
      .view({1, residues, residues, channels})
      .to(dtype);
}

std::string Hanji::name() const {
  return std::string(layout::kTriangleWayNames[static_cast<size_t>(way_)]);
}

at::Tensor Hanji::part(const at::Tensor& whole) const {
  return axis_.own_part(whole, 1, extents_on(axis_, whole.size(1))).clone();
}

at::Tensor Hanji::update(const at::Tensor& z, const Weights& weights, Edges edges) const {
  const at::Tensor x = normed(z);
  const auto places = parallel::axial::places_on(axis_, z.size(2), 0, way_);
  const Typed<Rows> a(edges_of(x, weights.a, weights.a_gate));
  const Typed<Rows> b(edges_of(x, weights.b, weights.b_gate));
  return updated(z, x, triangle_product(a, b, edges, places).value(), weights);
}

at::Tensor Classic::part(const at::Tensor& whole) const {
  return axis_.own_part(whole, 1, extents_on(axis_, whole.size(1))).clone();
}

at::Tensor Classic::gathered(const at::Tensor& x, int64_t dim, int64_t size) const {
  const Extents extents = extents_on(axis_, size);
  return comm::apply_linear(
      x, {[=, this](const at::Tensor& own) { return axis_.gather(own, dim, extents); },
          [=, this](const at::Tensor& g) { return axis_.own_part(axis_.sum(g), dim, extents); }});
}

at::Tensor Classic::update(const at::Tensor& z, const Weights& weights, Edges edges) const {
  const int64_t residues = z.size(2);
  const Extents rows = extents_on(axis_, residues);
  if (edges == Edges::kOutgoing) {
    const at::Tensor x = normed(z);
    const at::Tensor all = gathered(edges_of(x, weights.b, weights.b_gate), 1, residues);
    const at::Tensor own = edges_of(x, weights.a, weights.a_gate);
    const at::Tensor product =
        at::matmul(channels_first(own), channels_first(all).transpose(-1, -2));
    return updated(z, x, channels_last(product), weights);
  }
  const auto columns = parallel::axial::reshard_to<2>(Typed<Rows>(z), axis_, rows, rows);
  const at::Tensor x = normed(columns.value());
  const at::Tensor all = gathered(edges_of(x, weights.a, weights.a_gate), 2, residues);
  const at::Tensor own = edges_of(x, weights.b, weights.b_gate);
  const at::Tensor product = at::matmul(channels_first(all).transpose(-1, -2), channels_first(own));
  const parallel::axial::Typed<parallel::axial::Columns> turned(
      updated(columns.value(), x, channels_last(product), weights));
  return parallel::axial::reshard_to<1>(turned, axis_, rows, rows).value();
}

at::Tensor Grid::part(const at::Tensor& whole) const {
  const int64_t size = whole.size(1) / side_;
  const int row = group_.rank() / side_, column = group_.rank() % side_;
  return whole.narrow(1, row * size, size).narrow(2, column * size, size).contiguous();
}

at::Tensor Grid::update(const at::Tensor& z, const Weights& weights, Edges edges) const {
  const at::Tensor x = normed(z);
  const auto grid = c10::make_intrusive<GridHolder>(group_, side_, edges, sent_);
  const at::Tensor product = GridProduct::apply(edges_of(x, weights.a, weights.a_gate),
                                                edges_of(x, weights.b, weights.b_gate), grid);
  return updated(z, x, product, weights);
}

int64_t Grid::sent_blocks(int side) {
  int64_t sent = 0;
  for (int rank = 0; rank < side * side; ++rank) {
    const Places places(side, rank);
    const auto count = [&](Message message) { sent += message.to != rank ? 1 : 0; };
    for (const auto& [left, right] : kProducts) {
      count(places.first_left(left));
      count(places.first_right(right));
      for (int step = 1; step < side; ++step) {
        count(places.next_left());
        count(places.next_right());
      }
    }
  }
  return sent;
}

}  // namespace hanji::bench
