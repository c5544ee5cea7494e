#include "hanji/parallel/axial/triangle.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <numeric>

#include "hanji/base/status.h"
#include "hanji/compute/whole_vectors.h"

namespace hanji::parallel::axial {
namespace {

using layout::TriangleWay;

at::Tensor channels_first(const at::Tensor& x) { return x.permute({0, 3, 1, 2}); }
at::Tensor channels_last(const at::Tensor& x) { return x.permute({0, 2, 3, 1}); }

/// A matrix for each channel: which of them are here, and how many, must not choose the kernels.
at::Tensor matrices(const at::Tensor& x) {
  const at::Tensor first = channels_first(x);
  return compute::with_zeros_behind(first, compute::whole_vectors(first.size(2), x),
                                    compute::whole_vectors(first.size(3), x));
}

/// Of any number of rows and columns.
at::Tensor local_product(const at::Tensor& a, const at::Tensor& b, Edges edges) {
  const at::Tensor left = matrices(a), right = matrices(b);
  const bool is_outgoing = edges == Edges::kOutgoing;
  const at::Tensor product = is_outgoing ? compute::matmul_each(left, right.transpose(-1, -2))
                                         : compute::matmul_each(left.transpose(-1, -2), right);
  const int64_t rows = a.size(is_outgoing ? 1 : 2), columns = b.size(is_outgoing ? 1 : 2);
  return channels_last(product.narrow(2, 0, rows).narrow(3, 0, columns));
}

Typed<Rows> by_gathering(const Typed<Rows>& a, const Typed<Rows>& b, Edges edges,
                         const Places& places) {
  if (edges == Edges::kOutgoing) {
    const Typed<Full> whole = gather(b, places.axis, places.residues);
    return Typed<Rows>(local_product(a.value(), whole.value(), edges));
  }
  const Typed<tensor::Partial> terms(local_product(a.value(), b.value(), edges));
  return tensor::scatter_sum<1>(terms, places.axis, places.residues);
}

Typed<Rows> by_channels(const Typed<Rows>& a, const Typed<Rows>& b, Edges edges,
                        const Places& places) {
  const Extents channels = extents_on(places.axis.in_blocks(1), a.value().size(3));
  const at::Tensor both = internal::resharded(at::stack({a.value(), b.value()}),
                                              {2, places.residues}, {4, channels}, places.axis);
  const Typed<Channels> product(local_product(both.select(0, 0), both.select(0, 1), edges));
  return reshard_to<1>(product, places.axis, channels, places.residues);
}

/// What passes through all ranks: at step t rank r has the block of rank r + t.
class Ring {
 public:
  Ring(const Axis& axis, const Extents& residues) : axis_(axis), residues_(residues) {}

  int ranks() const { return axis_.degree(); }
  int owner(int step) const { return (axis_.rank() + step) % ranks(); }
  int64_t size(int rank) const { return residues_[rank]; }

  /// The block's part of dimension `dim`.
  at::Tensor part(const at::Tensor& x, int64_t dim, int rank) const {
    const int64_t begin = std::accumulate(residues_.begin(), residues_.begin() + rank, int64_t{0});
    return x.narrow(dim, begin, residues_[rank]);
  }

  /// Of the next step: blocks [B, size of the owner, N, C].
  at::Tensor pass(const at::Tensor& block, int step) const {
    std::vector<int64_t> sizes = block.sizes().vec();
    const int64_t beside = block.numel() / sizes[1];
    sizes[1] = size(owner(step + 1));
    Extents elements;
    for (int rank = 0; rank < ranks(); ++rank) {
      elements.push_back(residues_[(rank + step) % ranks()] * beside);
    }
    return axis_.from_next(block, sizes, elements);
  }

 private:
  Axis axis_;
  Extents residues_;
};

at::Tensor ring_outgoing(const at::Tensor& a, const at::Tensor& b, const Ring& ring) {
  at::Tensor product = at::empty(a.sizes(), a.options());
  at::Tensor block = b;
  for (int step = 0; step < ring.ranks(); ++step) {
    if (step > 0) block = ring.pass(block, step - 1);
    ring.part(product, 2, ring.owner(step)).copy_(local_product(a, block, Edges::kOutgoing));
  }
  return product;
}

/// Sums pass instead of operands: the rows of rank r arrive there last.
at::Tensor ring_incoming(const at::Tensor& a, const at::Tensor& b, const Ring& ring) {
  at::Tensor sum;
  for (int step = 1; step <= ring.ranks(); ++step) {
    const at::Tensor term =
        local_product(ring.part(a, 2, ring.owner(step)), b, Edges::kIncoming).contiguous();
    sum = sum.defined() ? ring.pass(sum, step - 1).add_(term) : term;
  }
  return sum;
}

using Pair = std::pair<at::Tensor, at::Tensor>;

/// The operand passes once more, and with it the sum of its gradient, which one more step brings home.
Pair ring_outgoing_gradients(const at::Tensor& g, const at::Tensor& a, const at::Tensor& b,
                             const Ring& ring) {
  at::Tensor da, db, block = b;
  const at::Tensor left = channels_first(a);
  for (int step = 0; step < ring.ranks(); ++step) {
    if (step > 0) block = ring.pass(block, step - 1);
    const at::Tensor here = channels_first(ring.part(g, 2, ring.owner(step)));
    const at::Tensor more = at::matmul(here, channels_first(block));
    da = da.defined() ? da.add_(more) : more;
    const at::Tensor term = channels_last(at::matmul(here.transpose(-1, -2), left)).contiguous();
    db = db.defined() ? ring.pass(db, step - 1).add_(term) : term;
  }
  return {channels_last(da), ring.pass(db, ring.ranks() - 1)};
}

Pair ring_incoming_gradients(const at::Tensor& g, const at::Tensor& a, const at::Tensor& b,
                             const Ring& ring) {
  at::Tensor da = at::empty(a.sizes(), a.options()), db, block = g;
  for (int step = 0; step < ring.ranks(); ++step) {
    if (step > 0) block = ring.pass(block, step - 1);
    const at::Tensor here = channels_first(block);
    const at::Tensor mine = at::matmul(channels_first(b), here.transpose(-1, -2));
    ring.part(da, 2, ring.owner(step)).copy_(channels_last(mine));
    const at::Tensor more = at::matmul(channels_first(ring.part(a, 2, ring.owner(step))), here);
    db = db.defined() ? db.add_(more) : more;
  }
  return {da, channels_last(db)};
}

struct RingHolder : torch::CustomClassHolder {
  RingHolder(Ring held, Edges of) : ring(std::move(held)), edges(of) {}
  Ring ring;
  Edges edges;
};

struct RingProduct : torch::autograd::Function<RingProduct> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& a,
                            const at::Tensor& b, const c10::intrusive_ptr<RingHolder>& held) {
    context->save_for_backward({a, b});
    context->saved_data["ring"] = c10::IValue::make_capsule(held);
    const at::Tensor left = a.detach().contiguous(), right = b.detach().contiguous();
    return held->edges == Edges::kOutgoing ? ring_outgoing(left, right, held->ring)
                                           : ring_incoming(left, right, held->ring);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto capsule = context->saved_data["ring"].toCapsule();
    const auto& held = static_cast<const RingHolder&>(*capsule);
    const auto saved = context->get_saved_variables();
    const at::Tensor g = gradients[0].contiguous(), a = saved[0].contiguous(),
                     b = saved[1].contiguous();
    auto [da, db] = held.edges == Edges::kOutgoing ? ring_outgoing_gradients(g, a, b, held.ring)
                                                   : ring_incoming_gradients(g, a, b, held.ring);
    return {std::move(da), std::move(db), at::Tensor()};
  }
};

}  // namespace

Typed<Rows> triangle_product(const Typed<Rows>& a, const Typed<Rows>& b, Edges edges,
                             const Places& places) {
  const bool by_rows =
      places.triangle == TriangleWay::kGather || places.triangle == TriangleWay::kRing;
  if (places.axis.num_blocks() > 1 && by_rows) {
    throw Error(
        base::unsupported("triangles in blocks of rows are multiplied by channels alone: gather "
                          "and ring sum over the "
                          "rows of each rank by itself; set parallel.triangle = \"channels\""));
  }
  if (places.axis.degree() == 1) {
    return Typed<Rows>(local_product(a.value(), b.value(), edges));
  }
  switch (places.triangle) {
    case TriangleWay::kGather: return by_gathering(a, b, edges, places);
    case TriangleWay::kAuto:
    case TriangleWay::kChannels: return by_channels(a, b, edges, places);
    case TriangleWay::kRing: break;
  }
  const Ring ring(places.axis, places.residues);
  return Typed<Rows>(
      RingProduct::apply(a.value(), b.value(), c10::make_intrusive<RingHolder>(ring, edges)));
}

}  // namespace hanji::parallel::axial
