#include "hanji/models/gpt.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "hanji/base/status.h"
#include "hanji/parallel/recompute.h"
#include "hanji/plan/model_spec.h"

namespace hanji::models {
namespace {

GptOptions small() {
  GptOptions options;
  options.layers = 2;
  options.heads = 2;
  options.width = 32;
  options.block = 24;
  options.vocabulary = 17;
  options.dtype = base::Precision::kFloat64;
  return options;
}

layers::Batch data(const GptOptions& options, int64_t batch) {
  auto tokens = at::arange(batch * options.block).mul(7).add(3).remainder(options.vocabulary);
  auto targets = tokens.mul(5).add(1).remainder(options.vocabulary);
  targets[0] = -1;
  return {.inputs = tokens.view({batch, options.block}),
          .targets = targets.view({batch, options.block}),
          .positions = {2, 2 + batch},
          .num_valid = batch * options.block - 1,
          .counters = {.seed = 3, .step = 5}};
}

/// The model written with torch's own differentiable operations.
at::Tensor plain_loss(GptImpl& model, const layers::Batch& batch) {
  auto p = model.named_parameters();
  const auto& o = model.options();
  const int64_t length = batch.inputs.size(1);
  auto norm = [&](const at::Tensor& x, const std::string& name) {
    return at::layer_norm(x, {o.width}, p[name + ".weight"], p[name + ".bias"]);
  };
  auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::linear(x, p[name + ".weight"], p[name + ".bias"]);
  };
  auto above = at::ones({length, length}, at::kBool).triu(1);
  auto x = at::embedding(p["transformer.wte.weight"], batch.inputs) +
           p["transformer.wpe.weight"].slice(0, 0, length);
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string h = "transformer.h." + std::to_string(i) + ".";
    const int64_t size = o.width / o.heads, kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads;
    auto split = linear(norm(x, h + "ln_1"), h + "attn.c_attn")
                     .split_with_sizes({o.width, kv_heads * size, kv_heads * size}, 2);
    for (auto& part : split) part = part.unflatten(2, {-1, size}).transpose(1, 2);
    for (size_t j : {1, 2}) split[j] = split[j].repeat_interleave(o.heads / kv_heads, 1);
    auto scores = at::matmul(split[0], split[1].transpose(2, 3)) /
                  std::sqrt(static_cast<double>(o.width / o.heads));
    auto mixed = at::matmul(scores.masked_fill(above, -INFINITY).softmax(-1), split[2]);
    x = x + linear(mixed.transpose(1, 2).reshape_as(x), h + "attn.c_proj");
    x = x + linear(at::gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc"), "tanh"), h + "mlp.c_proj");
  }
  auto head = p[o.tied ? "transformer.wte.weight" : "lm_head.weight"];
  auto logits = at::linear(norm(x, "transformer.ln_f"), head).view({-1, o.vocabulary});
  return at::cross_entropy_loss(logits, batch.targets.view({-1}), {}, at::Reduction::Sum, -1);
}

std::vector<at::Tensor> gradients(GptImpl& model, const at::Tensor& loss) {
  model.zero_grad();
  loss.backward();
  std::vector<at::Tensor> all;
  for (const auto& p : model.parameters()) all.push_back(p.grad().clone());
  return all;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

class GptParity : public testing::TestWithParam<std::tuple<bool, int64_t>> {};

TEST_P(GptParity, EqualsPlainOperationsInFloat64) {
  auto options = small();
  options.heads = 4;
  std::tie(options.tied, options.kv_heads) = GetParam();
  GptImpl model(options);
  const auto batch = data(options, 3);
  auto ours = model.loss_sum(batch).sum;
  auto plain = plain_loss(model, batch);
  EXPECT_NEAR(ours.item<double>(), plain.item<double>(), 1e-10);
  const auto our_gradients = gradients(model, ours);
  const auto plain_gradients = gradients(model, plain);
  const auto names = model.named_parameters().keys();
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_LT(distance(our_gradients[i], plain_gradients[i]), 1e-10) << names[i];
  }
}

INSTANTIATE_TEST_SUITE_P(TiedOrNotAndHeadsOfKeys, GptParity,
                         testing::Combine(testing::Bool(), testing::Values(0, 2, 1)));

TEST(Gpt, HasAsManyParametersAsThePlanCounts) {
  for (bool tied : {true, false}) {
    auto options = small();
    options.tied = tied;
    options.kv_heads = tied ? 0 : 1;
    GptImpl model(options);
    int64_t count = 0;
    for (const auto& p : model.parameters()) count += p.numel();
    const plan::ModelSpec spec{.layers = options.layers,
                               .heads = options.heads,
                               .width = options.width,
                               .block = options.block,
                               .vocabulary = options.vocabulary,
                               .tied = tied,
                               .kv_heads = options.kv_heads};
    EXPECT_EQ(count, spec.num_parameters());
  }
}

TEST(Gpt, NamesParametersAsNanoGptDoes) {
  GptImpl model(small());
  const auto names = model.named_parameters().keys();
  EXPECT_EQ(names[0], "transformer.wte.weight");
  EXPECT_EQ(names[1], "transformer.wpe.weight");
  EXPECT_THAT(names, testing::IsSupersetOf(
                         {"transformer.h.0.ln_1.weight", "transformer.h.0.attn.c_attn.weight",
                          "transformer.h.1.attn.c_proj.bias", "transformer.h.1.mlp.c_fc.weight",
                          "transformer.h.1.mlp.c_proj.bias", "transformer.ln_f.bias"}));
}

TEST(Gpt, RepeatsItsBits) {
  auto options = small();
  options.dtype = base::Precision::kFloat32;
  GptImpl first(options), second(options);
  const auto batch = data(options, 2);
  auto loss = first.loss_sum(batch).sum;
  auto again = second.loss_sum(batch).sum;
  EXPECT_TRUE(at::equal(loss, again));
  const auto a = gradients(first, loss), b = gradients(second, again);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i]));
}

/// A float32 branch would miss the fused normalisation, and take twice the memory.
TEST(Gpt, DroppedBranchesOfBf16StayBf16) {
  GptOptions options = small();
  options.dtype = base::Precision::kBFloat16;
  options.dropout = 0.1;
  GptImpl model(options);
  const auto batch = data(options, 2);
  const layers::Flow flow = model.layer(1, model.layer(0, {}, batch), batch);
  ASSERT_EQ(flow.size(), 2U);
  EXPECT_EQ(flow[0].scalar_type(), at::kFloat);
  EXPECT_EQ(flow[1].scalar_type(), at::kBFloat16);
  model.loss_sum(batch).sum.backward();
  EXPECT_EQ(model.named_parameters()["transformer.h.0.mlp.c_proj.bias"].grad().scalar_type(),
            at::kFloat);
}

TEST(Gpt, BlocksDropOtherElements) {
  for (const double dropout : {0.0, 0.5}) {
    GptOptions options = small();
    options.dropout = dropout;
    GptImpl model(options);
    const at::NoGradGuard no_grad;
    const auto first = model.layer_parameters(1), second = model.layer_parameters(2);
    for (size_t i = 0; i < first.size(); ++i) second[i].copy_(first[i]);
    const auto batch = data(options, 2);
    const layers::Flow before = {at::arange(2 * options.block * options.width, at::kDouble)
                                     .sin()
                                     .view({2, options.block, options.width})};
    const layers::Flow one = model.layer(1, before, batch), two = model.layer(2, before, batch);
    bool equal = true;
    for (size_t i = 0; i < one.size(); ++i) equal &= at::equal(one[i], two[i]);
    EXPECT_EQ(equal, dropout == 0);
  }
}

/// Dropout and the copies of bf16 are made again as they were.
TEST(Gpt, RecomputedBlocksHaveTheSameBits) {
  for (const auto dtype : {base::Precision::kFloat32, base::Precision::kBFloat16}) {
    for (const double dropout : {0.0, 0.1}) {
      auto options = small();
      options.dtype = dtype;
      options.dropout = dropout;
      GptImpl kept(options);
      GptImpl again(options);
      const auto batch = data(options, 2);
      const std::vector scopes = {parallel::recompute(again.recomputed_layers())};
      for (int pass = 0; pass < 2; ++pass) {
        kept.loss_sum(batch).sum.backward();
        again.loss_sum(batch, scopes).sum.backward();
      }
      for (const auto& item : kept.named_parameters()) {
        const at::Tensor other = again.named_parameters()[item.key()];
        EXPECT_TRUE(at::equal(item.value().grad(), other.grad()))
            << item.key() << ", dropout " << dropout;
      }
    }
  }
}

class GptSlots : public testing::TestWithParam<bool> {};

TEST_P(GptSlots, ReceiveGradients) {
  auto options = small();
  GptImpl model(options);
  std::vector<layers::LayerScope> scopes;
  if (GetParam()) scopes.push_back(parallel::recompute(model.recomputed_layers()));
  const auto batch = data(options, 2);
  const auto expected = gradients(model, model.loss_sum(batch).sum);
  std::vector<at::Tensor> slots;
  for (const auto& p : model.parameters())
    slots.push_back(at::full(p.sizes(), 7.0, p.options()).detach());
  model.set_gradient_slots(slots);
  model.zero_grad();
  for (int i = 0; i < 2; ++i) model.loss_sum(batch, scopes).sum.backward();
  const auto names = model.named_parameters().keys();
  size_t shared = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const at::Tensor grad = model.parameters()[i].grad();
    EXPECT_LT(distance(grad, 2 * expected[i]), 1e-12) << names[i];
    shared += grad.data_ptr() == slots[i].data_ptr();
  }
  EXPECT_GE(shared, static_cast<size_t>(4 * options.layers)) << "weights of products";
}

INSTANTIATE_TEST_SUITE_P(KeptOrRecomputed, GptSlots, testing::Bool());

/// The gradients of one pass, all of them on the model's device.
std::vector<at::Tensor> gradients_on(GptOptions options, c10::Device device) {
  options.device = device;
  GptImpl model(options);
  const layers::Batch batch = data(options, 3);
  const at::Tensor loss = model.loss_sum(batch.to(device)).sum;
  EXPECT_EQ(loss.device(), device);
  loss.backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model.parameters()) {
    EXPECT_EQ(parameter.device(), device);
    EXPECT_TRUE(parameter.grad().defined());
    EXPECT_EQ(parameter.grad().device(), device);
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

TEST(Gpt, LiesWhereItsDeviceSays) {
  GptOptions options = small();
  const GptImpl here(options);
  options.device = c10::kMeta;  // the device without memory
  const GptImpl there(options);
  const auto expected = here.named_parameters(), found = there.named_parameters();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i].key(), expected[i].key());
    EXPECT_EQ(found[i].value().sizes(), expected[i].value().sizes());
    EXPECT_TRUE(found[i].value().is_meta() && found[i].value().is_leaf()) << found[i].key();
  }
}

TEST(Gpt, HasTheGradientsOfTheCpuOnAGpu) {
  const bool there = c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
                     c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() > 0;
  if (!there) GTEST_SKIP() << "no GPU here";
  for (const double dropout : {0.0, 0.1}) {
    GptOptions options = small();  // in float64: the orders of sums differ
    options.dropout = dropout;
    const auto expected = gradients_on(options, c10::kCPU);
    const auto found = gradients_on(options, c10::Device(c10::kCUDA, 0));
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(found[i].cpu(), expected[i], 1e-9, 1e-9)) << i;
    }
  }
}

/// The parameters of the other layers are sealed while one runs.
TEST(Gpt, ALayerReadsItsOwnParametersOnly) {
  GptImpl model(small());
  const auto batch = data(small(), 2);
  const at::Tensor expected = model.loss_sum(batch).sum;
  const layers::LayerScope seal_others = [&](int64_t layer, layers::Flow flow,
                                             const layers::RunLayer& run) {
    const std::vector<at::Tensor> read = model.layer_parameters(layer);
    std::vector<std::pair<at::Tensor, at::Tensor>> sealed;
    for (const auto& item : model.named_parameters()) {
      if (std::ranges::any_of(read,
                              [&](const at::Tensor& one) { return one.is_same(item.value()); })) {
        continue;
      }
      sealed.emplace_back(item.value().detach(), item.value().detach().clone());
      sealed.back().first.fill_(NAN);
    }
    flow = run(std::move(flow));
    for (auto& [parameter, value] : sealed) parameter.copy_(value);
    return flow;
  };
  EXPECT_TRUE(at::equal(model.loss_sum(batch, {seal_others}).sum, expected));
}

TEST(Gpt, RefusesSizesThatDoNotFit) {
  auto options = small();
  options.heads = 5;
  EXPECT_THROW(GptImpl{options}, Error);
  options.heads = 4;
  options.kv_heads = 3;
  EXPECT_THROW(GptImpl{options}, Error);
}

TEST(Gpt, RefusesASampleLongerThanItsBlock) {
  GptImpl model(small());
  auto longer = small();
  longer.block += 1;
  EXPECT_THROW(model.loss_sum(data(longer, 1)), Error);
}

TEST(Gpt, InitialisesAsGpt2) {
  auto options = small();
  options.width = 128;
  options.layers = 8;
  GptImpl model(options);
  auto p = model.named_parameters();
  const auto& inner = p["transformer.h.3.mlp.c_fc.weight"];
  const auto& projection = p["transformer.h.3.mlp.c_proj.weight"];
  // 65536 values: the deviation of a mean is 0.02/256, of a deviation 0.02/362.
  EXPECT_NEAR(inner.mean().item<double>(), 0, 5 * 0.02 / 256);
  EXPECT_NEAR(inner.std().item<double>(), 0.02, 5 * 0.02 / 362);
  EXPECT_NEAR(projection.std().item<double>(), 0.02 / 4, 5 * 0.005 / 362);
  EXPECT_EQ(p["transformer.h.3.attn.c_attn.bias"].abs().max().item<double>(), 0);
  EXPECT_EQ(p["transformer.ln_f.weight"].min().item<double>(), 1);
}

}  // namespace
}  // namespace hanji::models
