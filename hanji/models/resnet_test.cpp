#include "hanji/models/resnet.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>

#include "hanji/base/status.h"
#include "hanji/parallel/recompute.h"

namespace hanji::models {
namespace {

int64_t num_parameters(const layers::Model& model) {
  int64_t count = 0;
  for (const at::Tensor& one : model.parameters()) count += one.numel();
  return count;
}

ResNetOptions tiny_resnet() {
  ResNetOptions options = resnet_preset("resnet-tiny");
  options.width = 4;
  options.classes = 5;
  return options;
}

layers::Batch images_of(int64_t size, int64_t pixels = 12) {
  at::manual_seed(3);
  return {.inputs = at::randn({size, 3, pixels, pixels}),
          .targets = at::arange(size) % 5,
          .positions = {0, size},
          .num_valid = size};
}

TEST(ResNet, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(num_parameters(*make_resnet(resnet_preset("resnet18"))), 11689512);
  EXPECT_EQ(num_parameters(*make_resnet(resnet_preset("resnet50"))), 25557032);
}

/// Table 1 of the paper: the side of each stage's output, and its channels.
TEST(ResNet, HasThePapersShapes) {
  for (const auto& [preset, last] : {std::pair("resnet18", 512), std::pair("resnet50", 2048)}) {
    ResNetOptions options = resnet_preset(preset);
    const auto model = make_resnet(options);
    model->eval();
    const at::NoGradGuard no_grad;
    const layers::Batch batch{.inputs = at::randn({1, 3, 224, 224})};
    layers::Flow flow = model->forward({0, 1}, {}, batch);
    EXPECT_EQ(flow.at(0).sizes(), (std::vector<int64_t>{1, 64, 56, 56}));
    flow = model->forward({1, model->num_layers() - 1}, flow, batch);
    EXPECT_EQ(flow.at(0).sizes(), (std::vector<int64_t>{1, last, 7, 7}));
    flow = model->forward({model->num_layers() - 1, model->num_layers()}, flow, batch);
    EXPECT_EQ(flow.at(0).sizes(), (std::vector<int64_t>{1, 1000}));
  }
}

TEST(ResNet, TheLossOfWeightsIsTheSumOfTheirClasses) {
  const auto model = make_resnet(tiny_resnet());
  layers::Batch batch = images_of(4);
  const layers::Flow flow = model->forward({0, model->num_layers()}, {}, batch);
  const at::Tensor each =
      at::cross_entropy_loss(flow.at(0), batch.targets, {}, at::Reduction::None).to(at::kDouble);
  const at::Tensor others =
      at::cross_entropy_loss(flow.at(0), (batch.targets + 1) % 5, {}, at::Reduction::None);
  batch.targets =
      0.75 * at::one_hot(batch.targets, 5) + 0.25 * at::one_hot((batch.targets + 1) % 5, 5);
  const layers::LossSum loss = model->loss(flow, batch);
  EXPECT_EQ(loss.count, 4);
  // Sums of 20 products of about 1.6 in float32.
  EXPECT_NEAR(loss.sum.item<double>(), (0.75 * each + 0.25 * others).sum().item<double>(), 1e-5);
  const double right = model->metric_sum(flow, batch);
  batch.targets = batch.targets.argmax(1);
  EXPECT_EQ(right, model->metric_sum(flow, batch));
}

TEST(ResNet, NamesAreThoseOfTorchvision) {
  ResNetOptions options = resnet_preset("resnet50");
  options.width = 2;
  const auto parameters = make_resnet(options)->named_parameters();
  for (const char* name : {"conv1.weight", "bn1.bias", "layer1.0.downsample.0.weight",
                           "layer1.0.downsample.1.bias", "layer4.2.conv3.weight", "fc.bias"}) {
    EXPECT_TRUE(parameters.contains(name)) << name;
  }
  EXPECT_TRUE(make_resnet(options)->named_buffers().contains("layer2.0.bn2.running_var"));
}

TEST(ResNet, ItsLayersOneByOneAreTheWhole) {
  const auto model = make_resnet(tiny_resnet());
  const layers::Batch batch = images_of(4);
  const layers::Flow whole = model->forward({0, model->num_layers()}, {}, batch);
  layers::Flow flow;
  for (int64_t i = 0; i < model->num_layers(); ++i) flow = model->forward({i, i + 1}, flow, batch);
  EXPECT_TRUE(at::equal(flow.at(0), whole.at(0)));
}

TEST(ResNet, ABottleneckTrainsAsABasicBlockDoes) {
  for (const bool bottleneck : {false, true}) {
    for (const bool large_stem : {false, true}) {
      ResNetOptions options = tiny_resnet();
      options.bottleneck = bottleneck;
      options.large_stem = large_stem;
      const auto model = make_resnet(options);
      const layers::LossSum loss = model->loss_sum(images_of(4, 32));
      loss.sum.backward();
      for (const auto& item : model->named_parameters()) {
        EXPECT_GT(item.value().grad().abs().max().item<float>(), 0) << item.key();
      }
    }
  }
}

TEST(ResNet, TheLossIsTorchsAndLeavesOutNegativeTargets) {
  const auto model = make_resnet(tiny_resnet());
  layers::Batch batch = images_of(6);
  const layers::Flow flow = model->forward({0, model->num_layers()}, {}, batch);
  const at::Tensor torchs =
      at::cross_entropy_loss(flow.at(0), batch.targets, {}, at::Reduction::Sum);
  EXPECT_TRUE(at::equal(model->loss(flow, batch).sum, torchs));
  batch.targets[1] = -7;
  batch.num_valid = 5;
  const layers::LossSum loss = model->loss(flow, batch);
  EXPECT_EQ(loss.count, 5);
  const at::Tensor one = at::cross_entropy_loss(flow.at(0)[1].unsqueeze(0),
                                                at::ones({1}, at::kLong), {}, at::Reduction::Sum);
  EXPECT_NEAR(loss.sum.item<double>(), (torchs - one).item<double>(), 1e-5);
}

TEST(ResNet, AccuracyCountsTheLikeliestClass) {
  const auto model = make_resnet(tiny_resnet());
  layers::Batch batch{.targets = at::tensor({1, 0, -1}, at::kLong)};
  const at::Tensor logits = at::tensor({0.1, 0.9, 0.2, 0.8, 0.5, 0.4}).view({3, 2});
  EXPECT_EQ(model->metric_name(), "accuracy");
  EXPECT_EQ(model->metric_sum({logits}, batch), 1);
}

/// By torch's own module: batch statistics and running statistics after one step.
TEST(ResNet, NormalisesAndMovesItsBuffersAsTorchDoes) {
  const auto model = make_resnet(tiny_resnet());
  const layers::Batch batch = images_of(6);
  const auto parameters = model->named_parameters();
  const at::Tensor convolved = at::conv2d(batch.inputs, parameters["conv1.weight"], {}, 1, 1);
  torch::nn::BatchNorm2d torchs(4);
  const at::Tensor expected = torchs(convolved).relu();
  EXPECT_TRUE(at::allclose(model->forward({0, 1}, {}, batch).at(0), expected, 1e-5, 1e-6));
  model->forward({0, model->num_layers()}, {}, batch);
  model->update_statistics(model->statistics({0, model->num_layers()}));
  const auto buffers = model->named_buffers();
  // The variance comes out of 1 / deviation, which has half a unit of the last place: 2^-23 of it.
  EXPECT_TRUE(at::allclose(buffers["bn1.running_mean"], torchs->running_mean, 1e-6, 1e-7));
  EXPECT_TRUE(at::allclose(buffers["bn1.running_var"], torchs->running_var, 1e-6, 1e-7));
}

TEST(ResNet, ForwardsMoveNoBufferAndEvaluationReadsThem) {
  const auto model = make_resnet(tiny_resnet());
  const layers::Batch batch = images_of(6);
  model->loss_sum(batch).sum.backward();
  for (const auto& item : model->named_buffers()) {
    const bool mean = item.key().ends_with("mean");
    EXPECT_TRUE(item.value().eq(mean ? 0 : 1).all().item<bool>()) << item.key();
  }
  const at::Tensor in_training = model->forward({0, model->num_layers()}, {}, batch).at(0);
  model->eval();
  const at::Tensor before = model->forward({0, model->num_layers()}, {}, batch).at(0);
  EXPECT_FALSE(at::allclose(before, in_training));
  model->update_statistics(model->statistics({0, model->num_layers()}));
  EXPECT_FALSE(at::equal(before, model->forward({0, model->num_layers()}, {}, batch).at(0)));
}

TEST(ResNet, RecomputationHasTheSameGradientsAndStatistics) {
  const auto run = [](bool recompute) {
    const auto model = make_resnet(tiny_resnet());
    std::vector<layers::LayerScope> scopes;
    if (recompute) scopes.push_back(parallel::recompute(model->recomputed_layers()));
    model->loss_sum(images_of(6), scopes).sum.backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& one : model->parameters()) gradients.push_back(one.grad());
    return std::pair(gradients, model->statistics({0, model->num_layers()}));
  };
  const auto [gradients, statistics] = run(false);
  const auto [again, statistics_again] = run(true);
  for (size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(at::equal(gradients[i], again[i]));
  EXPECT_EQ(statistics, statistics_again);
  EXPECT_EQ(std::ssize(statistics), make_resnet(tiny_resnet())->num_statistics());
}

TEST(ResNet, InitialValuesDependOnSeedAndName) {
  ResNetOptions options = tiny_resnet();
  const auto one = make_resnet(options)->parameters(), same = make_resnet(options)->parameters();
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], same[i]));
  options.seed = 2;
  EXPECT_FALSE(at::equal(make_resnet(options)->parameters()[0], one[0]));
  options.dtype = base::Precision::kFloat64;
  EXPECT_EQ(make_resnet(options)->parameters()[0].scalar_type(), at::kDouble);
}

TEST(ResNet, RefusesSizesBelowOneAndWordsItDoesNotKnow) {
  ResNetOptions options = tiny_resnet();
  options.stages = {1, 0};
  EXPECT_THROW(make_resnet(options), Error);
  options = tiny_resnet();
  options.classes = 1;
  EXPECT_THROW(make_resnet(options), Error);
  options = tiny_resnet();
  options.dtype = base::Precision::kBFloat16;
  EXPECT_THROW(make_resnet(options), Error);
  EXPECT_THROW(resnet_preset("resnet34"), Error);
}

}  // namespace
}  // namespace hanji::models
