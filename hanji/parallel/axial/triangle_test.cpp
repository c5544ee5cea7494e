#include "hanji/parallel/axial/triangle.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>

#include "hanji/compute/apply.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel::axial {
namespace {

using layout::TriangleWay;

constexpr int64_t kWidth = 5;  // which no degree here divides
constexpr std::array kWays = {TriangleWay::kGather, TriangleWay::kRing, TriangleWay::kChannels};

/// p, then the gradients of a and b, for the loss sum(p * w).
struct Triangle {
  at::Tensor product, da, db;
};

at::Tensor values(int64_t residues, double factor) {
  return (at::arange(2 * residues * residues * kWidth, at::kDouble) * factor)
      .sin()
      .view({2, residues, residues, kWidth});
}

Triangle expected_triangle(int64_t residues, Edges edges) {
  const at::Tensor a = values(residues, 0.31).requires_grad_();
  const at::Tensor b = values(residues, 0.53).requires_grad_();
  const char* sum = edges == Edges::kOutgoing ? "nikc,njkc->nijc" : "nkic,nkjc->nijc";
  const at::Tensor product = at::einsum(sum, {a, b});
  (product * values(residues, 0.77)).sum().backward();
  return {product.detach(), a.grad(), b.grad()};
}

at::Tensor rows_of(const at::Tensor& whole, const Places& places) {
  return own_rows(whole, places.own_residues()).clone();
}

/// On N residues of p ranks, each with its rows.
Triangle on_rank(int64_t residues, Edges edges, const Places& places,
                 at::ScalarType dtype = at::kDouble) {
  const auto own = [&](double factor) {
    return rows_of(values(residues, factor), places).to(dtype);
  };
  const at::Tensor a = own(0.31).requires_grad_(), b = own(0.53).requires_grad_();
  const at::Tensor product =
      triangle_product(Typed<Rows>(a), Typed<Rows>(b), edges, places).value();
  (product * own(0.77)).sum().backward();
  return {product.detach(), a.grad(), b.grad()};
}

/// Sums of at most 9 terms of size 1 in another order: 9 x 2^-53 of each, some 1e-15.
bool alike(const at::Tensor& found, const at::Tensor& expected) {
  return at::allclose(found, expected, 0, 1e-13);
}

TEST(TriangleProduct, IsThatOfOneRankForAnyWayRanksAndResidues) {
  for (const Edges edges : {Edges::kIncoming, Edges::kOutgoing}) {
    for (const int64_t residues : {4, 9}) {
      const Triangle expected = expected_triangle(residues, edges);
      for (const int ranks : {1, 2, 3, 4}) {
        for (const TriangleWay way : kWays) {
          test::run_ranks(ranks, [&](world::World& world) {
            const Places places = places_on(Axis(world.group()), residues, 0, way);
            const Triangle found = on_rank(residues, edges, places);
            EXPECT_TRUE(alike(found.product, rows_of(expected.product, places)));
            EXPECT_TRUE(alike(found.da, rows_of(expected.da, places)));
            EXPECT_TRUE(alike(found.db, rows_of(expected.db, places)));
          });
        }
      }
    }
  }
}

/// A gather whose backward takes this rank's part of its own gradient loses the other ranks' terms.
TEST(TriangleProduct, AGatherThatOnlySlicesBackwardWouldBeNoticed) {
  const Triangle expected = expected_triangle(6, Edges::kOutgoing);
  test::run_ranks(2, [&](world::World& world) {
    const Places places = places_on(Axis(world.group()), 6, 0, TriangleWay::kGather);
    const at::Tensor a = rows_of(values(6, 0.31), places);
    const at::Tensor b = rows_of(values(6, 0.53), places).requires_grad_();
    const at::Tensor whole = tensor::whole(Typed<Rows>(b), places.axis, places.residues).value();
    const at::Tensor product = at::einsum("nikc,njkc->nijc", {a, whole});
    EXPECT_TRUE(alike(product.detach(), rows_of(expected.product, places)));
    (product * rows_of(values(6, 0.77), places)).sum().backward();
    EXPECT_FALSE(alike(b.grad(), rows_of(expected.db, places)));
  });
}

TEST(Reshard, MovesUnevenPartsThereAndBack) {
  const at::Tensor whole = values(7, 0.41);
  for (const int ranks : {2, 3, 4}) {
    test::run_ranks(ranks, [&](world::World& world) {
      const Axis axis(world.group());
      const Extents residues = axis.extents_of(7), channels = axis.extents_of(kWidth);
      const layout::Range own = axis.own_range(residues), mine = axis.own_range(channels);
      const Typed<Rows> rows(whole.narrow(1, own.begin, own.size()).clone());
      const Typed<Columns> columns = reshard_to<2>(rows, axis, residues, residues);
      EXPECT_TRUE(at::equal(columns.value(), whole.narrow(2, own.begin, own.size())));
      EXPECT_TRUE(
          at::equal(reshard_to<1>(columns, axis, residues, residues).value(), rows.value()));
      const Typed<Channels> parts = reshard_to<3>(rows, axis, residues, channels);
      EXPECT_TRUE(at::equal(parts.value(), whole.narrow(3, mine.begin, mine.size())));
    });
  }
}

/// By each library of matmuls. Matrices of 9 x 9 and 11 x 11 that follow each other begin anywhere in a cache
/// line, and a rank's few channels may be too few for oneDNN where all of them are enough.
class TriangleProductBy : public testing::TestWithParam<base::Gemm> {};

void expect_bits_in_blocks(int ranks, int64_t residues, Edges edges) {
  const Places alone = places_on(Axis().in_blocks(4), residues, 0, TriangleWay::kChannels);
  const Triangle expected = on_rank(residues, edges, alone, at::kFloat);
  test::run_ranks(ranks, [&](world::World& world) {
    const Axis axis = Axis(world.group()).in_blocks(4);
    const Places places = places_on(axis, residues, 0, TriangleWay::kChannels);
    const Triangle found = on_rank(residues, edges, places, at::kFloat);
    EXPECT_TRUE(at::equal(found.product, rows_of(expected.product, places)));
    EXPECT_TRUE(at::equal(found.da, rows_of(expected.da, places)));
    EXPECT_TRUE(at::equal(found.db, rows_of(expected.db, places)));
  });
}

TEST_P(TriangleProductBy, InBlocksAChannelHasItsBitsAmongAnyOthers) {
  const compute::AppliedForAWhile applied({.gemm = GetParam()}, 1);
  for (const Edges edges : {Edges::kIncoming, Edges::kOutgoing}) {
    for (const int64_t residues : {9, 11}) {
      for (const int ranks : {2, 3, 4}) {
        SCOPED_TRACE(fmt::format("{} ranks, {} residues", ranks, residues));
        expect_bits_in_blocks(ranks, residues, edges);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, TriangleProductBy,
                         testing::Values(base::Gemm::kMkl, base::Gemm::kOneDnn),
                         [](const auto& one) { return std::string(base::name_of(one.param)); });

// What would count a gradient twice, lose it or take a part for a whole does
// not compile; each beside what must.
template <class A, class B>
concept Multiplies = requires(Typed<A> a, Typed<B> b, Places places) {
  triangle_product(a, b, Edges::kOutgoing, places);
};
template <class X>
concept IsTransposed = requires(Typed<X> x) {
  transposed(x);
};
static_assert(Multiplies<Rows, Rows>);
static_assert(!Multiplies<Rows, Full> && !Multiplies<Rows, Columns>);
static_assert(IsTransposed<Rows> && IsTransposed<Columns>);
static_assert(!IsTransposed<Channels> && !IsTransposed<Full>);
static_assert(std::is_same_v<decltype(gather(std::declval<Typed<Rows>>(), std::declval<Axis>())),
                             Typed<Full>>);
static_assert(!std::is_same_v<tensor::Replicated, Full>, "whose gradient would not be summed");

}  // namespace
}  // namespace hanji::parallel::axial
