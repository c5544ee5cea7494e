// What a module needs in training, counted by running it and by running it without memory.
#include "hanji/train/describe.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/options/batchnorm.h>

#include "hanji/lens/deferred.h"
#include "hanji/parallel/fsdp/sequential.h"
#include "hanji/plan/named_model.h"

namespace hanji::train {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kWidth = 32;
constexpr int64_t kHuge = 400'000;  // of which a matrix has 640 GB

plan::CountedModel read(const std::string& text) {
  return plan::counted_model_from_json(text).or_throw();
}

parallel::Sequential mixed_net() {
  using namespace torch::nn;
  return parallel::Sequential(Linear(8, kWidth), BatchNorm1d(kWidth), ReLU(), Dropout(0.1),
                              Linear(kWidth, 3));
}

layers::Batch sample_of(int64_t features) { return {.inputs = at::rand({1, features})}; }

TEST(Describe, CountsLayersParametersProductsAndBytes) {
  const plan::CountedModel model = read(describe(mixed_net(), sample_of(8)));
  EXPECT_EQ(model.precision, plan::Precision::kFloat32);
  ASSERT_EQ(model.facts.layers.size(), 5u);
  const std::vector<plan::ParameterFacts> parameters = {
      {8 * kWidth, 0}, {kWidth, 0}, {kWidth, 1}, {kWidth, 1}, {kWidth * 3, 4}, {3, 4}};
  EXPECT_EQ(model.facts.parameters, parameters);
  EXPECT_EQ(model.facts.sample_bytes, 4 * 8);
  EXPECT_EQ(model.facts.buffer_bytes, 2 * 4 * kWidth + 8);
  EXPECT_EQ(model.facts.num_statistics, 2 * kWidth + 1);
  // Two products of the first layer, whose input needs no gradient, and three of the last.
  EXPECT_EQ(model.facts.product_flops_per_sample(), 2 * (2 * 8 * kWidth + 3 * kWidth * 3));
  // Batch normalisation keeps its output for the next layer, and two numbers of a channel.
  EXPECT_EQ(model.facts.layers[1].kept, (plan::Amount{2 * 4 * kWidth, 4 * kWidth}));
  EXPECT_EQ(model.recomputed.parameters, parameters);
}

TEST(Describe, ModuleWithoutMemoryHasTheFactsOfOneInMemory) {
  const auto without = lens::deferred(mixed_net);
  const plan::CountedModel expected = read(describe(mixed_net(), sample_of(8)));
  const plan::CountedModel found = read(describe(without.module, sample_of(8)));
  EXPECT_EQ(found.facts.parameters, expected.facts.parameters);
  EXPECT_EQ(found.facts.buffer_bytes, expected.facts.buffer_bytes);
  for (size_t i = 0; i < expected.facts.layers.size(); ++i) {
    EXPECT_EQ(found.facts.layers[i].kept, expected.facts.layers[i].kept) << i;
    EXPECT_EQ(found.recomputed.layers[i].kept, expected.recomputed.layers[i].kept) << i;
    EXPECT_EQ(found.facts.layers[i].product_flops(), expected.facts.layers[i].product_flops()) << i;
  }
  for (const int64_t samples : {1, 16}) {
    const int64_t workspace = plan::workspace_bytes(expected.facts, samples);
    EXPECT_NEAR(plan::workspace_bytes(found.facts, samples), workspace, 0.1 * workspace + 512);
  }
}

TEST(Describe, ModelThatFitsInNoMemoryHereIsCounted) {
  const auto net = lens::deferred([] { return torch::nn::Linear(kHuge, kHuge); });
  const plan::CountedModel model = read(describe(net.module, sample_of(kHuge)));
  EXPECT_EQ(model.facts.num_parameters(), kHuge * (kHuge + 1));
  EXPECT_EQ(model.facts.layers[0].flow.per_sample, 4 * kHuge);
}

TEST(Describe, TheLossOfAProgramIsOfTheLastLayer) {
  const auto loss = [](const at::Tensor& output, const at::Tensor& targets) {
    return layers::LossSum{at::cross_entropy_loss(output, targets, {}, at::Reduction::Sum),
                           targets.numel()};
  };
  layers::Batch sample = sample_of(8);
  sample.targets = at::randint(3, {1});
  const plan::CountedModel with = read(describe(mixed_net(), sample, loss));
  const plan::CountedModel without = read(describe(mixed_net(), sample_of(8)));
  EXPECT_EQ(with.facts.sample_bytes, without.facts.sample_bytes + 8);
  EXPECT_GT(with.facts.layers[4].kept.per_sample, without.facts.layers[4].kept.per_sample);
}

TEST(Describe, RefusesWhatItCannotCountByName) {
  EXPECT_THAT([] { describe(torch::nn::Dropout(), sample_of(8)); },
              ThrowsMessage<Error>(HasSubstr("has no parameters")));
  EXPECT_THAT(
      [] {
        describe(mixed_net(), {.inputs = at::ones({0, 8})});
      },
      ThrowsMessage<Error>(HasSubstr("unsqueeze(0)")));
  auto half = mixed_net();
  half->to(at::kHalf);
  EXPECT_THAT([&] { describe(half, sample_of(8)); }, ThrowsMessage<Error>(HasSubstr("bfloat16")));
  auto two = mixed_net();
  two[0]->to(at::kDouble);
  EXPECT_THAT([&] { describe(two, sample_of(8)); },
              ThrowsMessage<Error>(HasSubstr("'0.weight' is Double and '1.weight' is Float")));
}

}  // namespace
}  // namespace hanji::train
