#include "hanji/models/module_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "hanji/base/status.h"
#include "hanji/parallel/fsdp/sequential.h"
#include "hanji/parallel/recompute.h"

namespace hanji::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::nn::BatchNorm1d;
using torch::nn::Dropout;
using torch::nn::Linear;

struct NetImpl : torch::nn::Module {
  Linear first = register_module("first", Linear(3, 4));
  at::Tensor scale = register_parameter("scale", at::ones({4}));
  at::Tensor shift = register_buffer("shift", at::ones({4}));
  at::Tensor forward(const at::Tensor& x) { return first(x) * scale + shift; }
};
TORCH_MODULE(Net);

layers::LossSum squares(const at::Tensor& output, const at::Tensor& /*targets*/) {
  return {output.square().sum(), output.size(0)};
}

layers::Batch batch_of(const at::Tensor& inputs, int64_t first = 0) {
  return {.inputs = inputs,
          .targets = at::zeros({inputs.size(0)}, at::kLong),
          .positions = {first, first + inputs.size(0)},
          .num_valid = inputs.size(0),
          .counters = {.seed = 1, .step = 0}};
}

at::Tensor inputs() { return at::arange(12, at::kFloat).view({4, 3}) / 12; }

template <class Holder>
std::shared_ptr<ModuleModel> model_of(const Holder& holder, const ModuleLoss& loss = squares) {
  return std::make_shared<ModuleModel>(layers_of(holder), loss, at::kFloat, batch_of(inputs()));
}

TEST(ModuleModel, HasTheModulesNamesInItsOrder) {
  const auto model = model_of(Net());
  EXPECT_THAT(model->named_parameters().keys(), ElementsAre("scale", "first.weight", "first.bias"));
  EXPECT_THAT(model->named_buffers().keys(), ElementsAre("shift"));
}

TEST(ModuleModel, IsOneLayerAndOfASequentialOneForEachMember) {
  EXPECT_EQ(model_of(Net())->num_layers(), 1);
  parallel::Sequential members(Linear(3, 5), torch::nn::Linear(5, 2));
  const auto model = model_of(members);
  EXPECT_EQ(model->num_layers(), 2);
  const at::Tensor output = model->forward({0, 2}, {}, batch_of(inputs())).at(0);
  EXPECT_TRUE(at::equal(output, members->forward(inputs())));
}

TEST(ModuleModel, GivesTheSumAndTheCountThatTheLossReturns) {
  const auto model = model_of(Net());
  const layers::LossSum loss = model->loss_sum(batch_of(inputs()));
  const at::Tensor output = model->forward({0, 1}, {}, batch_of(inputs())).at(0);
  EXPECT_EQ(loss.sum.item<float>(), output.square().sum().item<float>());
  EXPECT_EQ(loss.count, 4);
  const auto means = model_of(Net(), [](const at::Tensor& output, const at::Tensor&) {
    return layers::LossSum{output.square(), 1};
  });
  EXPECT_THAT([&] { means->loss_sum(batch_of(inputs())); },
              ThrowsMessage<Error>(HasSubstr("a tensor of 16 numbers, counted 1")));
}

TEST(ModuleModel, DropoutDependsOnSampleStepAndLayerAlone) {
  parallel::Sequential members(Dropout(0.5), Dropout(0.5));
  members->push_back(Linear(3, 3));
  const auto model = model_of(members);
  const auto output = [&](const layers::Batch& batch) {
    return model->forward({0, 1}, {}, batch).at(0);
  };
  const at::Tensor ones = at::ones({40, 3});
  const at::Tensor mask = output(batch_of(ones));
  at::rand({7});  // whatever else draws
  EXPECT_TRUE(at::equal(output(batch_of(ones)), mask));
  EXPECT_FALSE(at::equal(output(batch_of(ones, 40)), mask));
  layers::Batch later = batch_of(ones);
  later.counters.step = 1;
  EXPECT_FALSE(at::equal(output(later), mask));
  EXPECT_FALSE(at::equal(model->forward({1, 2}, {ones}, batch_of(ones)).at(0), mask));
  model->eval();
  EXPECT_TRUE(at::equal(output(batch_of(ones)), ones));
}

TEST(ModuleModel, RunningStatisticsMoveOnceByTheMeanOfWhatForwardsHaveSeen) {
  parallel::Sequential members(Linear(3, 4), BatchNorm1d(4), Linear(4, 1));
  const auto model = model_of(members);
  const at::Tensor mean = model->named_buffers()["1.running_mean"];
  const at::Tensor count = model->named_buffers()["1.num_batches_tracked"];
  EXPECT_EQ(model->num_statistics(), 4 + 4 + 1);
  std::vector<double> sum(9);
  at::Tensor expected = at::zeros({4});
  for (const double factor : {1.0, 3.0}) {
    const at::Tensor x = inputs() * factor;
    model->loss_sum(batch_of(x), {parallel::recompute({0, 3})}).sum.backward();
    EXPECT_TRUE(at::equal(mean, at::zeros({4}))) << "within a step nothing moves";
    expected += 0.1 * at::linear(x, model->parameters()[0], model->parameters()[1]).mean(0) / 2;
    const std::vector<double> seen = model->statistics({0, model->num_layers()});
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += seen[i] / 2;
  }
  model->update_statistics(sum);
  EXPECT_TRUE(at::allclose(mean, expected, 1e-5, 1e-6));
  EXPECT_EQ(count.item<int64_t>(), 1);
  model->eval();
  model->loss_sum(batch_of(inputs()));
  EXPECT_EQ(count.item<int64_t>(), 1) << "evaluation moves none";
}

TEST(ModuleModel, ABufferThatNoForwardMovesIsNoStatistic) {
  EXPECT_EQ(model_of(Net())->num_statistics(), 0);
}

TEST(ModuleModel, RecomputationHasTheGradientsOfAPlainPass) {
  std::vector<at::Tensor> gradients;
  for (const bool again : {false, true}) {
    at::manual_seed(1);
    parallel::Sequential members(Linear(3, 4), Dropout(0.5), BatchNorm1d(4), Linear(4, 1));
    const auto model = model_of(members);
    std::vector<layers::LayerScope> scopes;
    if (again) scopes = {parallel::recompute(model->recomputed_layers())};
    model->loss_sum(batch_of(inputs()), scopes).sum.backward();
    gradients.push_back(members->parameters()[0].grad());
  }
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
}

TEST(ModuleModel, RefusesByNameWhatItCannotTrain) {
  Net frozen;
  frozen->first->weight.requires_grad_(false);
  EXPECT_THAT([&] { model_of(frozen); }, ThrowsMessage<Error>(HasSubstr("'first.weight'")));
  BatchNorm1d norm(3);
  parallel::Sequential twice(norm, norm);
  EXPECT_THAT([&] { model_of(twice); }, ThrowsMessage<Error>(HasSubstr("moves in layers 0 and 1")));
  EXPECT_THAT([&] { model_of(parallel::Sequential()); },
              ThrowsMessage<Error>(HasSubstr("it has no layers")));
}

TEST(ModuleModel, CastsParametersBuffersAndInputsToItsDtype) {
  const ModuleModel model(layers_of(Net()), squares, at::kDouble, batch_of(inputs()));
  EXPECT_EQ(model.parameters()[0].scalar_type(), at::kDouble);
  EXPECT_EQ(model.buffers()[0].scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace hanji::models
