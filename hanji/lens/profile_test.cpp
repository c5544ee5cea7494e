#include "hanji/lens/profile.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn.h>

#include "hanji/base/status.h"
#include "hanji/lens/deferred.h"
#include "hanji/lens/observer.h"
#include "hanji/plan/model_family.h"
#include "hanji/plan/model_spec.h"

namespace hanji::lens {
namespace {

using testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::LinearOptions;

/// The GPT of plan::ModelSpec as a user of torch::nn writes it.
struct PlainGptImpl : torch::nn::Module {
  explicit PlainGptImpl(const plan::ModelSpec& spec) : spec(spec) {
    const int64_t c = spec.width;
    tokens = register_module("tokens", torch::nn::Embedding(spec.vocabulary, c));
    positions = register_parameter("positions", torch::randn({spec.block, c}));
    for (int64_t i = 0; i < spec.layers; ++i) {
      blocks->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({c})));
      blocks->push_back(Linear(c, 3 * c));
      blocks->push_back(Linear(c, c));
      blocks->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({c})));
      blocks->push_back(Linear(c, 4 * c));
      blocks->push_back(Linear(4 * c, c));
    }
    register_module("blocks", blocks);
    last = register_module("last", torch::nn::LayerNorm(torch::nn::LayerNormOptions({c})));
  }

  at::Tensor attention(const at::Tensor& qkv) const {
    const int64_t batch = qkv.size(0), length = qkv.size(1);
    const auto heads =
        qkv.view({batch, length, 3, spec.heads, spec.width / spec.heads}).permute({2, 0, 3, 1, 4});
    const auto weights = at::matmul(heads[0], heads[1].transpose(2, 3)).softmax(-1);
    return at::matmul(weights, heads[2]).transpose(1, 2).reshape({batch, length, spec.width});
  }

  at::Tensor loss(const at::Tensor& input) {
    auto x = tokens(input) + positions;
    for (size_t i = 0; i < blocks->size(); i += 6) {
      const auto norm = [&](size_t at) { return blocks[at]->as<torch::nn::LayerNorm>(); };
      const auto linear = [&](size_t at) { return blocks[at]->as<Linear>(); };
      const auto qkv = linear(i + 1)->forward(norm(i)->forward(x));
      x = x + linear(i + 2)->forward(attention(qkv));
      x = x + linear(i + 5)->forward(at::gelu(linear(i + 4)->forward(norm(i + 3)->forward(x))));
    }
    const auto logits = at::matmul(last(x), tokens->weight.t()).view({-1, spec.vocabulary});
    return at::cross_entropy_loss(logits, input.reshape({-1}));
  }

  plan::ModelSpec spec;
  torch::nn::Embedding tokens{nullptr};
  at::Tensor positions;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm last{nullptr};
};
TORCH_MODULE(PlainGpt);

TEST(Profile, AGptHasTheFlopsOfThePlan) {
  const plan::ModelSpec spec{.layers = 2, .heads = 2, .width = 32, .block = 24, .vocabulary = 17};
  plan::Config config;
  config.model = {.layers = 2, .heads = 2, .width = 32, .block = 24, .vocabulary = 17};
  const plan::ModelFacts facts = plan::family_of(config.model).facts(config);
  PlainGpt gpt(spec);
  const auto input = at::arange(3 * spec.block).remainder(spec.vocabulary).view({3, spec.block});
  const auto own = profile(*gpt, [&] { gpt->loss(input).backward(); });
  const double tokens = 3.0 * static_cast<double>(spec.block);
  EXPECT_EQ(own.forward_flops() + own.backward_flops(), tokens * facts.flops_per_target());
  EXPECT_EQ(own.backward_flops(), 2 * own.forward_flops());
  EXPECT_EQ(own.num_parameters(), spec.num_parameters());

  // Built and run without memory, it is the same.
  auto large = deferred([&] { return PlainGpt(spec); });
  const auto shape = input.to(at::kMeta);
  const auto without = profile(*large.module, [&] { large.module->loss(shape).backward(); });
  EXPECT_EQ(without.forward_flops(), own.forward_flops());
  EXPECT_EQ(without.backward_flops(), own.backward_flops());
  EXPECT_EQ(without.kept_bytes(), own.kept_bytes());
  EXPECT_EQ(without.parameter_sizes, own.parameter_sizes);
}

TEST(Profile, WithoutMemoryItIsTheSame) {
  const auto build = [] {
    return torch::nn::TransformerEncoder(
        torch::nn::TransformerEncoderOptions(torch::nn::TransformerEncoderLayerOptions(32, 2), 2));
  };
  const auto run = [](torch::nn::TransformerEncoder& net, c10::Device device) {
    const auto x = at::ones({5, 3, 32}, device);
    return profile(*net, [&] { net->forward(x).sum().backward(); });
  };
  auto plain = build();
  auto large = deferred(build);
  const auto own = run(plain, c10::kCPU), without = run(large.module, c10::kMeta);
  EXPECT_GT(own.forward_flops(), 0);
  EXPECT_EQ(without.forward_flops(), own.forward_flops());
  EXPECT_EQ(without.backward_flops(), own.backward_flops());
  EXPECT_EQ(without.parameter_sizes, own.parameter_sizes);

  // Kernels that libtorch lacks are gone afterwards.
  EXPECT_THROW(at::relu(at::ones({1}, at::kMeta)), c10::NotImplementedError);
  EXPECT_THAT(
      [&] { profile(*plain, [] { at::ones({1}, at::kMeta).item(); }); },
      testing::ThrowsMessage<Error>(HasSubstr("aten::_local_scalar_dense needs the elements")));
}

TEST(Profile, SumsByPartOfTheModuleAndKeptBytes) {
  torch::nn::Sequential net(Linear(LinearOptions(10, 20).bias(false)), torch::nn::Sigmoid(),
                            Linear(LinearOptions(20, 5).bias(false)));
  const auto x = at::ones({7, 10});
  const auto own = profile(*net, [&] { net->forward(x).sum().backward(); });
  const auto sum = [&](const std::string& module, const std::string& operation, bool backward) {
    for (const auto& row : own.sums) {
      if (row.module == module && row.operation == operation && row.backward == backward) {
        return row;
      }
    }
    return OperationSum{};
  };
  EXPECT_EQ(sum("0", "aten::mm", false).flops, 2 * 7 * 10 * 20);
  EXPECT_EQ(sum("2", "aten::mm", false).flops, 2 * 7 * 20 * 5);
  EXPECT_EQ(sum("0", "aten::mm", false).calls, 1);
  EXPECT_EQ(sum("0", "aten::sigmoid", false).read_bytes, 4 * 7 * 20);
  // Sigmoid keeps its result; the product before it is gone.
  EXPECT_EQ(sum("0", "aten::sigmoid", false).kept_bytes, 4 * 7 * 20);
  EXPECT_EQ(sum("0", "aten::mm", false).kept_bytes, 0);
  EXPECT_EQ(own.backward_flops(), 2 * 7 * 10 * 20 + 2 * (2 * 7 * 20 * 5));
  EXPECT_THAT(own.table(2), HasSubstr("aten::mm"));
  EXPECT_THAT(own.table(2), HasSubstr("others"));
}

TEST(Profile, ObserversBesideItSeeWholeOperations) {
  struct Count : Observer {
    std::vector<std::string> names;
    void before(const Operation& operation) override { names.push_back(operation.name()); }
  } count;
  torch::nn::Module nothing;
  const auto a = at::ones({2, 3, 4}), b = at::ones({4, 5});
  const Scope scope(count);
  const auto own = profile(nothing, [&] { at::matmul(a, b); });
  EXPECT_THAT(count.names, testing::ElementsAre("aten::matmul"));
  EXPECT_EQ(own.forward_flops(), 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(own.sums.front().module, "");
}

}  // namespace
}  // namespace hanji::lens
