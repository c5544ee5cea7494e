#include "hanji/lens/deferred.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <torch/nn.h>

#include <algorithm>
#include <map>

#include "hanji/base/clock.h"
#include "hanji/base/status.h"
#include "hanji/layout/shard.h"

namespace hanji::lens {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

using Build = std::function<std::shared_ptr<torch::nn::Module>()>;

/// A module of everything that people do in constructors.
struct OddImpl : torch::nn::Module {
  OddImpl() {
    at::NoGradGuard no_grad;
    scaled = register_parameter("scaled", torch::randn({70, 300}) * 0.02 + 1);
    truncated = register_parameter("truncated", torch::empty({333, 77}));
    truncated.uniform_(-0.9, 0.9).erfinv_().mul_(1.4142 * 0.5).add_(0.1).clamp_(-1, 1);
    orthogonal = register_parameter("orthogonal", torch::empty({30, 40}));
    torch::nn::init::orthogonal_(orthogonal);
    half = register_parameter("half", torch::empty({40000}, at::kBFloat16).normal_(2, 3));
    padded = register_module(
        "padded", torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 8).padding_idx(3)));
    tied = register_parameter("tied", scaled);
    numbers = register_buffer("numbers", torch::tensor({1.5, 2.5, 3.5}));
    from_vector = register_buffer("from_vector", torch::tensor(std::vector<int64_t>{7, 8, 9}) * 2);
    steps = torch::linspace(0, 1, 5)[2].item<double>();
    order = register_buffer("order", torch::randperm(100));
    mask = register_buffer("mask", torch::ones({6, 6}).tril());
    untouched = register_buffer("untouched", torch::empty({4}));
    big = register_buffer("big", torch::full({300000}, 3.0, at::kDouble).sub_(1));
    dropped = register_buffer("dropped", torch::empty({50000}).bernoulli_(0.25));
  }
  at::Tensor scaled, truncated, orthogonal, half, tied, numbers, from_vector, order, mask;
  at::Tensor untouched, big, dropped;
  torch::nn::Embedding padded{nullptr};
  double steps = 0;
};

const std::map<std::string, Build>& builds() {
  using namespace torch::nn;
  static const std::map<std::string, Build> all = {
      {"mlp", [] { return Sequential(Linear(70, 300), ReLU(), Linear(300, 10)).ptr(); }},
      {"conv",
       [] {
         return Sequential(Conv2d(Conv2dOptions(3, 40, 5)), BatchNorm2d(40), GroupNorm(4, 40),
                           ConvTranspose1d(ConvTranspose1dOptions(6, 4, 3)))
             .ptr();
       }},
      {"lstm", [] { return LSTM(LSTMOptions(30, 50).num_layers(2).bidirectional(true)).ptr(); }},
      {"transformer",
       [] {
         return TransformerEncoder(
                    TransformerEncoderOptions(TransformerEncoderLayerOptions(64, 4), 2))
             .ptr();
       }},
      {"odd", [] { return std::make_shared<OddImpl>(); }},
      {"bfloat16", [] {
         Linear linear(200, 300);
         linear->to(at::kBFloat16);
         return linear.ptr();
       }}};
  return all;
}

class DeferredModule : public testing::TestWithParam<std::string> {};

TEST_P(DeferredModule, LiesOnMetaAndLooksAsIfBuiltPlainly) {
  const auto& build = builds().at(GetParam());
  torch::manual_seed(1);
  const auto plain = build();
  const auto module = deferred(build);
  const auto expected = plain->named_parameters(), own = module.module->named_parameters();
  ASSERT_EQ(own.size(), expected.size());
  const auto same = [&](const at::Tensor& a, const at::Tensor& b, const std::string& name) {
    EXPECT_TRUE(a.is_meta()) << name;
    EXPECT_EQ(a.sizes(), b.sizes()) << name;
    EXPECT_EQ(a.strides(), b.strides()) << name;
    EXPECT_EQ(a.scalar_type(), b.scalar_type()) << name;
    EXPECT_EQ(a.requires_grad(), b.requires_grad()) << name;
    EXPECT_EQ(a.is_leaf(), b.is_leaf()) << name;
  };
  for (const auto& item : expected) same(own[item.key()], item.value(), item.key());
  const auto buffers = module.module->named_buffers();
  for (const auto& item : plain->named_buffers())
    same(buffers[item.key()], item.value(), item.key());
  module.materialise();
  // Drawn otherwise, but of the same distribution: mean and deviation agree within what chance allows.
  for (const auto& item : expected) {
    const auto a = module.module->named_parameters()[item.key()].to(at::kDouble);
    const auto b = item.value().to(at::kDouble);
    EXPECT_FALSE(a.is_meta());
    if (b.numel() < 16) continue;
    const double deviation = b.std(false).item<double>();
    const double chance = 6 * deviation / std::sqrt(static_cast<double>(b.numel())) + 1e-7;
    EXPECT_NEAR(a.mean().item<double>(), b.mean().item<double>(), 1.5 * chance) << item.key();
    EXPECT_NEAR(a.std(false).item<double>(), deviation, 1.5 * chance) << item.key();
  }
}

/// The parameters, tied ones once.
std::vector<at::Tensor> distinct(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const auto& p : module.parameters()) {
    const auto same = [&](const at::Tensor& known) { return known.is_same(p); };
    if (std::none_of(all.begin(), all.end(), same)) all.push_back(p);
  }
  return all;
}

/// All parameters in one flat buffer, as `ranks` ranks make it, each its shard.
at::Tensor joined(const Build& build, int ranks, int64_t multiple) {
  std::vector<at::Tensor> shards;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto module = deferred(build);
    std::vector<int64_t> sizes;
    for (const auto& p : distinct(*module.module)) sizes.push_back(p.numel());
    const auto layout = layout::flat_layout(sizes);
    const auto range = layout::shard_range(layout.count, ranks, rank, multiple);
    shards.push_back(at::full({range.size()}, 9, at::kDouble));
    module.initial.write_flat(layout, range, shards.back());
  }
  return at::cat(shards);
}

TEST_P(DeferredModule, ShardsOfAnyNumberOfRanksAreTheWhole) {
  const auto& build = builds().at(GetParam());
  const auto whole = deferred(build);
  const auto before = distinct(*whole.module);
  std::vector<int64_t> sizes;
  for (const auto& p : before) sizes.push_back(p.numel());
  const auto layout = layout::flat_layout(sizes);
  whole.materialise();
  auto flat = at::zeros({layout.count}, at::kDouble);
  for (size_t i = 0; i < before.size(); ++i) {
    flat.slice(0, layout.offsets[i], layout.offsets[i] + sizes[i])
        .copy_(before[i].detach().reshape({-1}));
  }
  for (const int ranks : {1, 2, 3, 4}) {
    EXPECT_TRUE(at::equal(joined(build, ranks, 64), flat)) << ranks;
  }
  EXPECT_TRUE(at::equal(joined(build, 3, 1), flat)) << "cut anywhere";
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeferredModule,
                         testing::Values("mlp", "conv", "lstm", "transformer", "odd", "bfloat16"));

TEST(Deferred, WhatConstructorsWriteAndReadIsKept) {
  const auto built = deferred([] { return std::make_shared<OddImpl>(); });
  EXPECT_EQ(built.module->steps, 0.5);  // read while it was built
  auto odd = built.materialise();
  EXPECT_TRUE(at::equal(odd->numbers, at::tensor({1.5, 2.5, 3.5})));
  EXPECT_TRUE(at::equal(odd->from_vector, at::tensor({14, 16, 18}, at::kLong)));
  EXPECT_TRUE(at::equal(odd->mask, at::ones({6, 6}).tril()));
  EXPECT_TRUE(at::equal(odd->untouched, at::zeros({4})));
  EXPECT_EQ(odd->big[299999].item<double>(), 2);
  EXPECT_TRUE(at::equal(std::get<0>(odd->order.sort()), at::arange(100)));
  EXPECT_TRUE(odd->tied.is_same(odd->scaled));
  EXPECT_EQ(odd->padded->weight[3].abs().max().item<float>(), 0);
  const auto gram = at::matmul(odd->orthogonal, odd->orthogonal.t());
  EXPECT_TRUE(at::allclose(gram, at::eye(30), 1e-4, 1e-5));
  EXPECT_NEAR(odd->dropped.mean().item<double>(), 0.25, 0.01);
}

TEST(Deferred, TrainsAfterItHasMemory) {
  using namespace torch::nn;
  auto built = deferred([] { return Sequential(Linear(8, 16), BatchNorm1d(16), Linear(16, 1)); });
  auto net = built.materialise();
  net->forward(at::ones({4, 8})).sum().backward();
  for (const auto& p : net->parameters()) EXPECT_TRUE(p.grad().defined() && p.is_leaf());
  EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 1);
}

TEST(Deferred, SeedsAndDrawsDiffer) {
  const auto values = [](uint64_t seed) {
    auto built = deferred(
        [] { return torch::nn::Sequential(torch::nn::Linear(50, 50), torch::nn::Linear(50, 50)); },
        {.seed = seed});
    return built.materialise()->parameters();
  };
  const auto a = values(1), b = values(2), again = values(1);
  EXPECT_FALSE(at::equal(a[0], b[0]));
  EXPECT_FALSE(at::equal(a[0], a[2]));
  EXPECT_TRUE(at::equal(a[0], again[0]));
}

TEST(Deferred, FingerprintsAreOfWhatATensorHoldsAndOfNothingElse) {
  const auto of = [](const char* name, uint64_t seed, double gain, bool talks = false) {
    const auto built = deferred(
        [&] {
          if (talks) torch::zeros({7}).add_(1);
          torch::nn::Sequential net(torch::nn::Linear(50, 50));
          const at::NoGradGuard no_grad;
          net->parameters()[0].mul_(gain);
          net->parameters()[1].copy_(torch::tensor({gain}).expand({50}));
          return net;
        },
        {.seed = seed});
    for (int i = 0; i < built.initial.size(); ++i) {
      if (built.initial.name(i) == name) return built.initial.fingerprint(i);
    }
    return uint64_t{0};
  };
  for (const char* name : {"0.weight", "0.bias"}) {
    EXPECT_EQ(of(name, 1, 2), of(name, 1, 2));
    EXPECT_EQ(of(name, 1, 2), of(name, 1, 2, /*talks=*/true));
    EXPECT_NE(of(name, 1, 2), of(name, 2, 2));
    EXPECT_NE(of(name, 1, 2), of(name, 1, std::nextafter(2, 3)));
  }
  EXPECT_NE(of("0.weight", 1, 2), of("0.bias", 1, 2));
}

TEST(Deferred, TorchsGeneratorStaysWhereItWas) {
  const auto state = at::detail::getDefaultCPUGenerator().get_state();
  deferred([] { return std::make_shared<OddImpl>(); }).materialise();
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), state));
}

TEST(Deferred, ThreadsDoNotChangeBits) {
  const auto values = [](int threads) {
    at::set_num_threads(threads);
    auto built = deferred([] { return std::make_shared<OddImpl>(); });
    return built.materialise()->truncated.clone();
  };
  const int threads = at::get_num_threads();
  const auto one = values(1), three = values(3);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one, three));
}

TEST(Deferred, RefusalsNameTheOperation) {
  struct Resized : torch::nn::Module {
    Resized() { register_parameter("w", torch::ones({4}).resize_({8})); }
  };
  const auto built = deferred([] { return std::make_shared<Resized>(); });
  EXPECT_THAT([&] { built.materialise(); }, ThrowsMessage<Error>(HasSubstr("aten::resize_")));
  auto outside = at::zeros({3, 3});
  EXPECT_THAT(
      [&] {
        deferred([&] {
          outside.copy_(torch::rand({3, 3}));
          return torch::nn::Linear(1, 1);
        });
      },
      ThrowsMessage<Error>(HasSubstr("made before hanji::deferred")));
  const auto linear = deferred([] { return torch::nn::Linear(3, 5); });
  EXPECT_THAT(
      [&] {
        linear.initial.write(0, {10, 16}, at::zeros({6}));
      },
      ThrowsMessage<Error>(HasSubstr("'weight': elements [10, 16) of 15")));
  EXPECT_THAT(
      [&] {
        linear.initial.write(0, {0, 6}, at::zeros({5}));
      },
      ThrowsMessage<Error>(HasSubstr("as many elements, not 5")));
  EXPECT_TRUE(at::ones({2}).is_cpu()) << "the scope has ended";
}

TEST(Deferred, TensorsFromOutsideMayBeRead) {
  const auto outside = at::arange(6).to(at::kFloat).view({2, 3});
  struct Copied : torch::nn::Module {
    explicit Copied(const at::Tensor& from) {
      w = register_parameter("w", torch::zeros({2, 3}));
      at::NoGradGuard no_grad;
      w.copy_(from);
      kept = register_buffer("kept", from.clone());
      both = register_buffer("both", at::cat({from, w}));
    }
    at::Tensor w, kept, both;
  };
  auto built = deferred([&] { return std::make_shared<Copied>(outside); });
  EXPECT_TRUE(built.module->w.is_meta() && built.module->kept.is_meta());
  auto copied = built.materialise();
  EXPECT_TRUE(at::equal(copied->w, outside));
  EXPECT_TRUE(at::equal(copied->kept, outside));
  EXPECT_TRUE(at::equal(copied->both, at::cat({outside, outside})));
}

int64_t most_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

TEST(Deferred, TenThousandMillionParametersTakeNoMemory) {
  deferred([] { return torch::nn::Linear(2, 2); });
  const int64_t before = most_memory_bytes();
  const int64_t start = base::now_ns();
  const auto built = deferred([] { return torch::nn::Linear(100'000, 100'000); });
  EXPECT_LT(static_cast<double>(base::now_ns() - start) * 1e-9, 2);
  auto few = at::empty({1000});
  built.initial.write(0, {9'999'999'000, 10'000'000'000}, few);
  EXPECT_LT(most_memory_bytes() - before, 50 << 20);
  EXPECT_LE(few.abs().max().item<double>(), 1 / std::sqrt(1e5));
  EXPECT_NEAR(few.abs().mean().item<double>(), 0.5 / std::sqrt(1e5), 1e-4);
}

}  // namespace
}  // namespace hanji::lens
