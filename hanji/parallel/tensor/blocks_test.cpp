// What is computed in blocks of features is the same bits on any number of ranks.
#include "hanji/parallel/tensor/blocks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "hanji/lens/observer.h"
#include "hanji/parallel/tensor/block_norm.h"
#include "hanji/parallel/tensor/linear.h"
#include "hanji/parallel/tensor/loss.h"
#include "hanji/parallel/tensor/regions.h"
#include "hanji/parallel/test_net.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel::tensor {
namespace {

using test_net::refusal;
using testing::HasSubstr;

// Blocks of unequal size: 6 heads, 6 units of hidden features, 65 columns.
constexpr int64_t kRows = 37, kFeatures = 48, kHidden = 96, kColumns = 65;

struct BlockedWeight {
  layout::Placement placement;
  std::vector<int64_t> sizes;
};

const std::map<std::string, BlockedWeight>& blocked_weights() {
  static const std::map<std::string, BlockedWeight> all = {
      {"qkv", {{0, {kFeatures, kFeatures, kFeatures}, 8}, {3 * kFeatures, kFeatures}}},
      {"out", {{1, {kFeatures}, 8}, {kFeatures, kFeatures}}},
      {"up", {{0, {kHidden}, 16}, {kHidden, kFeatures}}},
      {"down", {{1, {kHidden}, 16}, {kFeatures, kHidden}}},
      {"head", {{0, {kColumns}, 16}, {kColumns, kFeatures}}}};
  return all;
}

at::Tensor wave(at::IntArrayRef sizes, int64_t seed) {
  return (at::arange(c10::multiply_integers(sizes), at::kFloat) * 1.7 + seed).sin().view(sizes);
}

at::Tensor part_in_blocks(layout::Placement placement, const at::Tensor& whole, const Axis& axis) {
  placement.blocks = axis.num_blocks();
  return part_of(whole, placement, axis.rank(), axis.degree());
}

/// Of a chain of columns and rows that ends in a loss.
struct Outcome {
  at::Tensor y, loss, x_gradient;
  std::map<std::string, at::Tensor> gradients;
};

Outcome outcome_on(const Axis& axis, at::ScalarType type) {
  std::map<std::string, at::Tensor> own;
  for (const auto& [name, one] : blocked_weights()) {
    const at::Tensor whole = (wave(one.sizes, std::ssize(own)) * 0.3).to(type);
    own[name] = part_in_blocks(one.placement, whole, axis).contiguous().requires_grad_();
  }
  const auto parameter = [&]<int64_t kDim>(Sharded<kDim>, const std::string& name) {
    const BlockedWeight& one = blocked_weights().at(name);
    return Parameter<Sharded<kDim>>{
        {own.at(name), at::zeros_like(own.at(name).detach())},
        feature_blocks(one.placement, one.sizes[one.placement.dim], axis)};
  };
  const at::Tensor x = wave({kRows, kFeatures}, 9).to(type).requires_grad_();
  const auto qkv =
      column_linear(enter(Typed<Replicated>(x), axis), parameter(Sharded<0>{}, "qkv")).value();
  const auto parts = qkv.chunk(3, -1);
  const Typed<Features> mixed(parts[0] * parts[1] + parts[2]);
  const auto y = sum(row_linear(mixed, parameter(Sharded<1>{}, "out")), axis);
  const auto up = column_linear(enter(y, axis), parameter(Sharded<0>{}, "up"));
  const auto z =
      sum(row_linear(Typed<Features>(up.value().tanh()), parameter(Sharded<1>{}, "down")), axis);
  const auto head = parameter(Sharded<0>{}, "head");
  const auto targets = (at::arange(kRows, at::kLong) * 29).remainder(kColumns);
  targets[3] = -1;
  const auto loss = cross_entropy_sum(column_linear(enter(z, axis), head), targets, axis,
                                      axis.extents_of(kColumns, 16), {head.blocks, {}});
  loss.value().backward();
  Outcome outcome{y.value().detach(), loss.value().detach(), x.grad(), {}};
  for (const auto& [name, value] : own) outcome.gradients[name] = value.grad();
  return outcome;
}

class BlocksOfType : public testing::TestWithParam<std::tuple<int, at::ScalarType>> {};

TEST_P(BlocksOfType, HaveTheSameBitsOnAnyNumberOfRanks) {
  const auto [blocks, type] = GetParam();
  const Outcome whole = outcome_on(Axis().in_blocks(blocks), type);
  for (int degree = 2; degree <= blocks; ++degree) {
    test::run_ranks(degree, [&, blocks = blocks, type = type](world::World& world) {
      const Axis axis = Axis(world.group()).in_blocks(blocks);
      const Outcome found = outcome_on(axis, type);
      const std::string where = std::to_string(world.rank()) + " of " + std::to_string(degree);
      EXPECT_TRUE(at::equal(found.y, whole.y)) << where;
      EXPECT_TRUE(at::equal(found.loss, whole.loss)) << where;
      EXPECT_TRUE(at::equal(found.x_gradient, whole.x_gradient)) << where;
      for (const auto& [name, gradient] : found.gradients) {
        const auto& placement = blocked_weights().at(name).placement;
        EXPECT_TRUE(at::equal(gradient, part_in_blocks(placement, whole.gradients.at(name), axis)))
            << name << ", " << where;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(FeatureBlocks, BlocksOfType,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values(at::kFloat, at::kBFloat16)));

/// Four blocks on three ranks: 2, 1 and 1, of which the tree joins the last two.
/// The strides of factors and results of products.
class Strides : public lens::Observer {
 public:
  void before(const lens::Operation& operation) override {
    if (operation.name() != "aten::mm" && operation.name() != "aten::addmm_") return;
    ++num_products;
    operation.for_each_input([&](const at::Tensor& one) {
      if (!one.is_contiguous() && !one.t().is_contiguous()) ++num_strided;
    });
  }
  int num_products = 0, num_strided = 0;
};

/// By them oneDNN takes tiles of AMX or vectors, whose bits differ.
TEST(FeatureBlocks, NoBf16ProductHasStridesOfTheWhole) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Strides strides;
    const lens::Scope scope(strides);
    (void)outcome_on(Axis().in_blocks(3), type);
    EXPECT_GT(strides.num_products, 3 * 5 * 3 - 1);
    EXPECT_EQ(strides.num_strided > 0, type == at::kFloat) << "or this would not see them";
  }
}

TEST(FeatureBlocks, AFlatSumOfTheRanksTermsWouldBeSeen) {
  const layout::Placement placement{1, {160}, 16};
  const at::Tensor x = wave({kRows, 160}, 1), weight = wave({kFeatures, 160}, 2);
  const auto row = [&](const Axis& axis) {
    return row_linear(
        Typed<Features>(part_in_blocks(placement, x, axis)),
        {{part_in_blocks(placement, weight, axis), {}}, feature_blocks(placement, 160, axis)});
  };
  const Axis alone = Axis().in_blocks(4);
  const at::Tensor whole = sum(row(alone), alone).value();
  test::run_ranks(3, [&](world::World& world) {
    const Axis axis = Axis(world.group()).in_blocks(4);
    const auto partials = row(axis);
    EXPECT_TRUE(at::equal(sum(partials, axis).value(), whole));
    EXPECT_FALSE(at::equal(axis.sum(partials.value().sum(0)), whole));
  });
}

double norm_on(const Axis& axis) {
  layout::Cut cut{{{"bias", {}}}, axis.rank(), axis.degree()};
  std::vector<NamedParameter> parameters = {{"bias", wave({1500}, 7)}};
  for (const auto& [name, one] : blocked_weights()) {
    layout::Placement placement = one.placement;
    const at::Tensor whole = wave(one.sizes, std::ssize(parameters));
    if (placement.segments.size() < 2) placement.segments = {whole.size(placement.dim)};
    placement.blocks = axis.num_blocks();
    cut.placements.push_back({name, placement});
    parameters.push_back({name, part_in_blocks(placement, whole, axis)});
  }
  std::vector<at::Tensor> gradients;
  for (const auto& one : parameters) gradients.push_back(one.tensor.contiguous());
  return BlockNorm(parameters, cut, axis).of(parameters, gradients);
}

TEST(FeatureBlocks, TheNormOfGradientsIsThatOfOneProcess) {
  const double whole = norm_on(Axis().in_blocks(4));
  double squares = wave({1500}, 7).square().sum(at::kDouble).item<double>();
  int64_t seed = 1;
  for (const auto& [name, one] : blocked_weights()) {
    squares += wave(one.sizes, seed++).square().sum(at::kDouble).item<double>();
  }
  EXPECT_NEAR(whole, std::sqrt(squares), 1e-6 * whole);
  for (const int degree : {2, 3, 4}) {
    test::run_ranks(degree, [&](world::World& world) {
      EXPECT_EQ(norm_on(Axis(world.group()).in_blocks(4)), whole);
    });
  }
}

TEST(FeatureBlocks, OfOneAreWholeProducts) {
  EXPECT_EQ(feature_blocks({1, {160}, 16}, 160, Axis().in_blocks(1)), nullptr);
  const at::Tensor x = wave({kRows, kFeatures}, 1), weight = wave({kHidden, kFeatures}, 2);
  const Axis axis = Axis().in_blocks(1);
  const auto y = column_linear(enter(Typed<Replicated>(x), axis), {{weight, {}}, nullptr});
  EXPECT_TRUE(at::equal(y.value(), compute::linear(x, {weight, {}})));
}

/// A stream that ranks cut by rows between its sums.
TEST(FeatureBlocks, OfRowsThatRanksCutHaveTheSameBits) {
  const layout::Placement placement{1, {160}, 16}, columns{0, {160}, 16};
  const auto chain = [&](const Axis& axis, const Extents& rows) {
    const at::Tensor x = wave({kRows, kFeatures}, 1).requires_grad_();
    const auto column = part_in_blocks(columns, wave({160, kFeatures}, 2), axis).requires_grad_();
    const auto row = part_in_blocks(placement, wave({kFeatures, 160}, 3), axis).requires_grad_();
    const auto blocks = feature_blocks(placement, 160, axis);
    const auto own = cut<-2>(Typed<Replicated>(x), axis, rows);
    const auto up = column_linear(gather(own, axis, rows), {{column, {}}, blocks});
    const auto down = scatter_sum<-2>(
        row_linear(Typed<Features>(up.value().tanh()), {{row, {}}, blocks}), axis, rows);
    const at::Tensor y = whole(down, axis, rows).value();
    y.square().sum().backward();
    return std::vector<at::Tensor>{y.detach(), x.grad(), column.grad(), row.grad()};
  };
  const auto alone = chain(Axis().in_blocks(5), {kRows});
  for (const int degree : {2, 3}) {
    test::run_ranks(degree, [&](world::World& world) {
      const Axis axis = Axis(world.group()).in_blocks(5);
      const auto found = chain(axis, axis.extents_of(kRows));
      EXPECT_TRUE(at::equal(found[0], alone[0]));
      EXPECT_TRUE(at::equal(found[1], alone[1]));
      EXPECT_TRUE(at::equal(found[2], part_in_blocks(columns, alone[2], axis)));
      EXPECT_TRUE(at::equal(found[3], part_in_blocks(placement, alone[3], axis)));
    });
  }
}

TEST(RowBlocks, GradientsThatAreSummedTogetherHaveTheBitsOfEachAlone) {
  for (const int blocks : {1, 5}) {
    test::run_ranks(3, [&](world::World& world) {
      const Axis axis = Axis(world.group()).in_blocks(blocks);
      const at::Tensor a = wave({kFeatures}, 1).requires_grad_(), b = wave({3}, 2).requires_grad_();
      const auto gradients = [&](const std::vector<Parameter<Broadcast>>& entered) {
        std::vector<at::Tensor> outputs, terms;
        for (const auto& one : entered) {
          outputs.push_back(one.weight.value);
          terms.push_back(wave(one.weight.value.sizes(), 3 + world.rank()) * 1e3);
        }
        return torch::autograd::grad(outputs, {a, b}, terms);
      };
      const Parameter<Replicated> first{{a, {}}}, second{{b, {}}};
      const auto alone = gradients({enter(first, axis), enter(second, axis)});
      const auto together = gradients(enter(std::vector{first, second}, axis));
      EXPECT_TRUE(at::equal(together[0], alone[0]));
      EXPECT_TRUE(at::equal(together[1], alone[1]));
    });
  }
}

TEST(RowBlocks, AParametersGradientsAreAddedByTheTree) {
  const at::Tensor terms = wave({5, kFeatures}, 3) * 1e3;
  const auto gradient = [&](const Axis& axis, const at::Tensor& own) {
    const at::Tensor parameter = wave({kFeatures}, 1).requires_grad_();
    const auto entered = enter(Parameter<Replicated>{{parameter, {}}}, axis);
    EXPECT_EQ(entered.weight.value.sizes(), own.sizes());
    entered.weight.value.backward(own);
    return parameter.grad();
  };
  const at::Tensor whole = gradient(Axis().in_blocks(5), terms);
  EXPECT_FALSE(at::equal(whole, terms.sum(0))) << "or another order would not be seen";
  test::run_ranks(3, [&](world::World& world) {
    const Axis axis = Axis(world.group()).in_blocks(5);
    const layout::Range own = axis.own_range(axis.extents_of(5));
    EXPECT_TRUE(at::equal(gradient(axis, terms.narrow(0, own.begin, own.size())), whole));
  });
}

TEST(FeatureBlocks, FewerThanRanksAndMovedWeightsAreRefused) {
  test::run_ranks(3, [](world::World& world) {
    const Axis axis(world.group());
    EXPECT_THAT(refusal([&] { (void)axis.in_blocks(2); }), HasSubstr("take 3 blocks or more"));
    const Axis blocked = axis.in_blocks(4);
    const Parameter<Sharded<0>> weight{{wave({kRows, kFeatures}, 1), {}}};
    EXPECT_THAT(refusal([&] { (void)gather(weight, blocked); }), HasSubstr("moves no weights"));
  });
}

}  // namespace
}  // namespace hanji::parallel::tensor
