#include "hanji/layers/model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "hanji/base/status.h"

namespace hanji::layers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Layer i adds its number to every element; what it returns can be spoilt.
class Counting : public Model {
 public:
  Counting() : Model("Counting") {}
  int64_t num_layers() const override { return 4; }
  Flow layer(int64_t index, Flow flow, const Batch& batch) override {
    seen.push_back(index);
    if (index == spoilt) return spoilt_flow;
    return {(index == 0 ? batch.inputs : flow.at(0)) + index};
  }
  std::vector<at::Tensor> layer_parameters(int64_t index) const override {
    if (index == 1) return {tied};
    return index == 3 ? std::vector<at::Tensor>{own, tied} : std::vector<at::Tensor>();
  }
  LossSum loss(Flow flow, const Batch& batch) override {
    return {flow.at(0).sum(), batch.num_valid};
  }

  at::Tensor tied = at::zeros({1}), own = at::zeros({1});

  std::vector<int64_t> seen;
  int64_t spoilt = -1;
  Flow spoilt_flow;
};

Batch batch() { return {.inputs = at::zeros({2}), .targets = at::zeros({2}), .num_valid = 2}; }

TEST(Model, RunsItsLayersInOrderAndTheLossOverTheLastFlow) {
  Counting model;
  const LossSum loss = model.loss_sum(batch());
  EXPECT_THAT(model.seen, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(loss.sum.item<double>(), 2 * (1 + 2 + 3));
  EXPECT_EQ(loss.count, 2);
}

TEST(Model, ARangeGoesOnWithTheFlowThatItIsGiven) {
  Counting model;
  const Flow first = model.forward({0, 2}, {}, batch());
  const Flow rest = model.forward({2, 4}, first, batch());
  EXPECT_TRUE(at::equal(rest.at(0), model.forward({0, 4}, {}, batch()).at(0)));
}

TEST(Model, AParameterBelongsToTheFirstLayerThatReadsIt) {
  const Counting model;
  EXPECT_EQ(model.layer_of(model.tied), 1);
  EXPECT_EQ(model.layer_of(model.own), 3);
  EXPECT_EQ(model.layer_of(at::zeros({1})), 0) << "read by none";
}

TEST(Model, ScopesLieAroundEachLayerTheFirstOutermost) {
  Counting model;
  std::vector<std::string> seen;
  const auto scope = [&seen](std::string name) {
    return [&seen, name](int64_t layer, Flow flow, const RunLayer& run) {
      seen.push_back(name + std::to_string(layer));
      flow = run(std::move(flow));
      seen.push_back(name + "end");
      return flow;
    };
  };
  model.forward({1, 2}, {at::zeros({2})}, batch(), {scope("outer"), scope("inner")});
  EXPECT_THAT(seen, ElementsAre("outer1", "inner1", "innerend", "outerend"));
}

TEST(Model, AScopeMayCallALayerAgainAfterTheForward) {
  Counting model;
  std::vector<RunLayer> kept;
  const std::vector<LayerScope> scopes = {[&](int64_t, Flow flow, const RunLayer& run) {
    kept.push_back(run);
    return run(std::move(flow));
  }};
  const Flow once = model.forward({0, 1}, {}, batch(), scopes);
  EXPECT_TRUE(at::equal(kept.at(0)({}).at(0), once.at(0)));
  EXPECT_THAT(model.seen, ElementsAre(0, 0));
}

TEST(Model, RefusesARangeOutsideAndAFlowThatIsNone) {
  Counting model;
  EXPECT_THAT(
      [&] {
        model.forward({3, 5}, {at::zeros({2})}, batch());
      },
      ThrowsMessage<Error>(HasSubstr("layers [3, 5) of 4")));
  model.spoilt = 2;
  EXPECT_THAT([&] { model.loss_sum(batch()); },
              ThrowsMessage<Error>(HasSubstr("layer 2 returned 0 tensors")));
  model.spoilt_flow = {at::Tensor()};
  EXPECT_THAT([&] { model.loss_sum(batch()); }, ThrowsMessage<Error>(HasSubstr("undefined")));
  model.spoilt_flow = Flow(5, at::zeros({1}));
  EXPECT_THAT([&] { model.loss_sum(batch()); }, ThrowsMessage<Error>(HasSubstr("5 tensors")));
}

}  // namespace
}  // namespace hanji::layers
