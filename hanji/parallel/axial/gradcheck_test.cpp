#include "hanji/parallel/axial/gradcheck.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include "hanji/base/status.h"
#include "hanji/parallel/axial/triangle.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel::axial {
namespace {

constexpr int64_t kResidues = 7, kChannels = 4;

/// How the part of a triangle that other ranks have arrives.
enum class Gathered : uint8_t { kSum, kSlice };

/// b_jk of all rows times a_ik of this rank's, then a head of every pair, whose bias is broadcast.
struct Multiplication : torch::nn::Module {
  Multiplication(const Axis& own_axis, Gathered own_way) : axis(own_axis), way(own_way) {
    left = register_module("left", torch::nn::Linear(kChannels, kChannels));
    right = register_module("right", torch::nn::Linear(kChannels, kChannels));
    head = register_parameter("head", at::zeros({kChannels}));
  }

  at::Tensor forward(const at::Tensor& z, const at::Tensor& scale) {
    const Extents residues = extents_on(axis, z.size(2));
    const Typed<Rows> b(right->forward(z));
    const at::Tensor all = way == Gathered::kSum ? gather(b, axis, residues).value()
                                                 : tensor::whole(b, axis, residues).value();
    return at::einsum("nikc,njkc->nijc", {left->forward(z), all}) * (head + scale);
  }

  Axis axis;
  Gathered way;
  torch::nn::Linear left = nullptr, right = nullptr;
  at::Tensor head;
};

GradCheck check_of(Gathered way) {
  const at::Tensor z = (at::arange(2 * kResidues * kResidues * kChannels, at::kDouble) * 0.3)
                           .cos()
                           .view({2, kResidues, kResidues, kChannels});
  return {.make = [way](const Axis& axis) { return std::make_shared<Multiplication>(axis, way); },
          .forward =
              [](torch::nn::Module& module, const std::vector<at::Tensor>& inputs) {
                return std::vector{module.as<Multiplication>()->forward(inputs[0], inputs[1])};
              },
          .inputs = {{z, 1}, {at::ones({kChannels}, at::kDouble), -1}},
          .output_dims = {1}};
}

std::vector<std::string> names_of(const std::vector<GradDifference>& differences) {
  std::vector<std::string> names;
  for (const GradDifference& one : differences) names.push_back(one.what);
  return names;
}

TEST(GradCheck, FindsNothingInAModuleThatIsRightOnAnyRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    test::run_ranks(ranks, [&](world::World& world) {
      EXPECT_THAT(names_of(check_gradients(check_of(Gathered::kSum), world.group())),
                  testing::IsEmpty());
    });
  }
}

/// Forward is exact; what passes through the gathered operand lacks the other ranks' terms.
TEST(GradCheck, NamesWhatAGatherThatOnlySlicesBackwardSpoils) {
  test::run_ranks(2, [&](world::World& world) {
    const auto found = check_gradients(check_of(Gathered::kSlice), world.group());
    EXPECT_THAT(names_of(found),
                testing::ElementsAre("gradient of input 0", "gradient of right.weight",
                                     "gradient of right.bias"));
    for (const GradDifference& one : found) EXPECT_GT(one.relative, 0.01) << one.what;
  });
}

/// The gradient of what only moves a softmax is rounding of zero, on one rank and on several.
struct Shifted : torch::nn::Module {
  explicit Shifted(const Axis&) {
    shift = register_parameter("shift", at::zeros({1}));
    weight = register_parameter("weight", at::zeros({kChannels}));
  }
  at::Tensor shift, weight;
};

TEST(GradCheck, AZeroGradientIsNoDifference) {
  GradCheck check = check_of(Gathered::kSum);
  check.make = [](const Axis& axis) { return std::make_shared<Shifted>(axis); };
  check.forward = [](torch::nn::Module& module, const std::vector<at::Tensor>& inputs) {
    const auto& one = *module.as<Shifted>();
    return std::vector{at::softmax(inputs[0] * one.weight * inputs[1] + one.shift, -1) * 100};
  };
  test::run_ranks(3, [&](world::World& world) {
    EXPECT_THAT(names_of(check_gradients(check, world.group())), testing::IsEmpty());
  });
}

TEST(GradCheck, RefusesOutputsThatWereNotSaid) {
  GradCheck check = check_of(Gathered::kSum);
  check.output_dims = {1, 1};
  test::run_ranks(
      2, [&](world::World& world) { EXPECT_THROW(check_gradients(check, world.group()), Error); });
}

}  // namespace
}  // namespace hanji::parallel::axial
