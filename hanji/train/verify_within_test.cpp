// Ranks that sum in another order than one process are compared with it within a bound.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "hanji/data/text.h"
#include "hanji/models/make.h"
#include "hanji/parallel/context/attention.h"
#include "hanji/parallel/context/ring.h"
#include "hanji/plan/verifiable.h"
#include "hanji/train/count_facts.h"
#include "hanji/train/test_dataset.h"
#include "hanji/train/test_job_run.h"
#include "hanji/train/test_verified.h"

namespace hanji::train {
namespace {

using plan::ContextWay;
using testing::ElementsAre;

struct WithinCase {
  std::string name;
  std::function<void(plan::Config&)> set;
};

plan::Plan plan_within(const WithinCase& of) {
  const Dataset& dataset = bytes_of_text();
  plan::PlanInputs inputs = float64_job(dataset);
  plan::Config& config = inputs.config;
  config.model.layers = 2;
  config.model.heads = 4;
  config.train.epsilon = plan::kVerifiedEpsilon;
  of.set(config);
  inputs.model = count_facts(config, Workload{dataset});
  return plan::make_plan(inputs).or_throw();
}

void set_ring(plan::Config& config) {
  config.run.ranks = 4;
  config.mesh.cp = 2;
  config.model.dropout = 0;
  config.parallel.context = ContextWay::kRing;
}

void set_tp(plan::Config& config) { config.run.ranks = config.mesh.tp = 2; }

std::vector<WithinCase> cases_within() {
  return {{"ring, dp 2", set_ring},
          {"tp 2", set_tp},
          {"tp 2, sequence",
           [](plan::Config& config) {
             set_tp(config);
             config.parallel.sequence = true;
           }},
          {"Ulysses, tp 2, sequence",
           [](plan::Config& config) {
             set_tp(config);
             config.run.ranks = 4;
             config.mesh.cp = 2;
             config.parallel.context = ContextWay::kUlysses;
             config.parallel.sequence = true;
           }},
          {"pp 2, dp 2",
           [](plan::Config& config) {
             config.run.ranks = 4;
             config.mesh.pp = 2;
           }},
          {"groups of 3 ranks",
           [](plan::Config& config) {
             config.run.ranks = 6;
             config.mesh.dp = 2;
             config.parallel.data = plan::Sharding::kHybrid;
           }},
          {"fast", [](plan::Config& config) {
             config.run.ranks = 3;
             config.train.bits = plan::Bits::kFast;
           }}};
}

/// What a sum in another order leaves is a hundredth of the bound or less.
TEST(VerifyWithin, RanksAreOneProcessWhereTheySumInAnotherOrder) {
  for (const WithinCase& of : cases_within()) {
    const plan::Plan plan = plan_within(of);
    EXPECT_EQ(plan::verified_within(plan), plan::kVerifiedWithin) << of.name;
    const report::Certificate found = verified(plan, {bytes_of_text()}, {});
    EXPECT_TRUE(found.equal()) << of.name << "\n" << report::describe(found);
    EXPECT_LT(found.farthest, plan::kVerifiedWithin / 100) << of.name;
    const bool may_have_bits = of.name == "fast";
    EXPECT_TRUE(found.farthest > 0 || may_have_bits) << of.name;
  }
}

/// Every rank of tp has it.
report::Certificate certificate_of_moved(double part) {
  ObservedParts parts;
  parts.step = [=](Job& job, const plan::TrainConfig& train, const StepInputs& inputs) {
    const StepResult result = run_step(job, train, inputs);
    if (inputs.number != 1 || job.group.rank() != 1) return result;
    for (const auto& [name, tensor] : job.strategy->parameters()) {
      if (!name.ends_with("ln_f.weight")) continue;
      const at::NoGradGuard no_grad;
      tensor.view({-1})[5].add_(part * tensor.abs().max());
    }
    return result;
  };
  return verified(plan_within({"tp 2", set_tp}), {bytes_of_text()}, parts);
}

TEST(VerifyWithin, WhatIsBeyondTheBoundIsNamedWithItsDistance) {
  const report::Certificate wrong = certificate_of_moved(1e-10);
  ASSERT_FALSE(wrong.equal());
  const report::FirstDifference& found = *wrong.difference;
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.quantity, report::Quantity::kParameter);
  EXPECT_TRUE(found.tensor.ends_with("ln_f.weight"));
  EXPECT_THAT(found.ranks, ElementsAre(1));
  EXPECT_THAT(found.axes, ElementsAre("tp"));
  EXPECT_EQ(found.num_tensors, 1) << "others are within the bound";
  ASSERT_TRUE(found.distance.has_value());
  EXPECT_NEAR(found.distance->largest, 1e-10, 1e-12);
  EXPECT_TRUE(certificate_of_moved(1e-14).equal());
}

/// A table, one attention in a ring, and the table as head.
class RingNet : public layers::Model {
 public:
  using Axis = parallel::tensor::Axis;
  static constexpr int64_t kTokens = 256, kWidth = 16, kHeads = 2;

  RingNet(Axis axis, bool reuses_first_block)
      : Model("RingNet"), axis_(std::move(axis)), reuses_first_block_(reuses_first_block) {
    add("wte", {kTokens, kWidth});
    add("qkv", {3 * kWidth, kWidth});
    register_buffer("no_bias", at::zeros({3 * kWidth}, at::kDouble));
  }
  int64_t num_layers() const override { return 3; }
  layers::Flow layer(int64_t index, layers::Flow flow, const layers::Batch& batch) override {
    const auto weights = named_parameters();
    if (index == 0) {
      const at::Tensor own = own_tokens(batch.inputs, 1, places_of(batch));
      return {at::embedding(weights["wte"], own)};
    }
    if (index == 2) return {at::matmul(flow[0], weights["wte"].t())};
    return {flow[0] + attended(at::matmul(flow[0], weights["qkv"].t()), places_of(batch))};
  }
  layers::LossSum loss(layers::Flow flow, const layers::Batch& batch) override {
    const at::Tensor own = own_tokens(batch.targets, 1, places_of(batch)).reshape({-1});
    return {at::cross_entropy_loss(flow[0].flatten(0, 1), own, {}, at::Reduction::Sum),
            own.numel()};
  }
  std::vector<at::Tensor> layer_parameters(int64_t index) const override {
    return {named_parameters()[index == 1 ? "qkv" : "wte"]};
  }
  layout::Cut cut() const override { return {{{"*", {}}}, 0, 1}; }

 private:
  using Places = parallel::context::Places;

  Places places_of(const layers::Batch& batch) const {
    return parallel::context::places_on(axis_, batch.inputs.size(1), ContextWay::kRing);
  }

  /// As causal_attention(), by lists of its own.
  at::Tensor attended(const at::Tensor& qkv, const Places& places) const {
    const compute::Weight no_bias{named_buffers()["no_bias"], {}};
    if (!places.is_cut() || !reuses_first_block_) {
      return parallel::context::causal_attention(qkv, no_bias, {.heads = kHeads}, places);
    }
    parallel::context::RingLists lists = parallel::context::ring_lists(places);
    for (layout::RingStep& step : lists.backward) step.receives = false;
    const auto parts = qkv.unflatten(2, {3 * kHeads, -1}).transpose(1, 2).chunk(3, 1);
    const at::Tensor out = parallel::context::ring_product(
        parts[0], at::stack({parts[1], parts[2]}), places, std::move(lists));
    return out.transpose(1, 2).flatten(2);
  }

  void add(const std::string& name, const std::vector<int64_t>& shape) {
    const at::Tensor index = at::arange(c10::multiply_integers(shape), at::kDouble).view(shape);
    register_parameter(name, (index * 1.7).sin() * 0.5);
  }

  const Axis axis_;
  const bool reuses_first_block_;
};

report::Certificate certificate_of_ring(bool reuses_first_block) {
  const auto maker = [](bool is_wrong) {
    return [=](const plan::Config&, const models::MakeOptions& options) {
      return std::make_shared<RingNet>(options.context, is_wrong);
    };
  };
  ObservedParts parts;
  parts.assemble = [&](const plan::Plan& plan, const comm::Group& group) {
    return assemble(plan, group, maker(reuses_first_block));
  };
  return verified(plan_within({"ring", set_ring}), {bytes_of_text(), maker(false)}, parts);
}

TEST(VerifyWithin, ABackwardOfARingThatReusesItsFirstBlockIsNamedAsTheDocsSay) {
  const report::Certificate right = certificate_of_ring(false);
  EXPECT_TRUE(right.equal()) << report::describe(right);
  const report::Certificate wrong = certificate_of_ring(true);
  ASSERT_FALSE(wrong.equal());
  const report::FirstDifference& found = *wrong.difference;
  EXPECT_THAT(found.ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(found.distance && found.distance->largest > 1e-6) << report::describe(wrong);
  const std::string words =
      fmt::format("of a ring whose backward reuses its first block, step {}, {} `{}` and axis {}",
                  found.step, name_of(found.quantity), found.tensor, fmt::join(found.axes, ", "));
  std::string text(data::embedded_text());  // has the docs
  std::ranges::replace(text, '\n', ' ');
  EXPECT_NE(text.find(words), std::string::npos) << words << report::describe(wrong);
}

}  // namespace
}  // namespace hanji::train
