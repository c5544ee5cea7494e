// Every operation against torch's own differentiable ones: values and all gradients. In float64
// the two differ by a few roundings of sums; in float32 ours may err four times as much as torch's.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "hanji/base/status.h"
#include "hanji/compute/attention.h"
#include "hanji/compute/convolution.h"
#include "hanji/compute/cross_entropy.h"
#include "hanji/compute/deferred.h"
#include "hanji/compute/gelu.h"
#include "hanji/compute/layer_norm.h"
#include "hanji/compute/linear.h"
#include "hanji/compute/test_operations.h"
#include "hanji/compute/whole_vectors.h"

namespace hanji::compute {
namespace {

struct Case {
  std::string name;
  std::vector<std::vector<int64_t>> sizes;
  Operation ours, plain;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Case attention_case(AttentionSizes s) {
  const int64_t row = (s.heads + 2 * s.kv_heads) * s.size;
  return {
      "Attention_T" + std::to_string(s.length) + "_D" + std::to_string(s.size) + "_H" +
          std::to_string(s.heads) + "_K" + std::to_string(s.kv_heads),
      {{s.batch, s.length, row}, {row}},
      [s](const Inputs& x) {
        return causal_attention(x[0], weight(x[1]), {s.heads, Attention::kMath, 0, {}, s.kv_heads});
      },
      [s](const Inputs& x) { return plain_attention(x, s.heads, s.kv_heads); }};
}

Case gelu_case(int64_t rows, int64_t columns) {
  return {"Gelu_" + std::to_string(rows) + "x" + std::to_string(columns),
          {{rows, columns}, {columns}},
          [](const Inputs& x) { return bias_gelu(x[0] * 3, weight(x[1])); },
          [](const Inputs& x) { return at::gelu(x[0] * 3 + x[1], "tanh"); }};
}

Case norm_case(int64_t rows, int64_t columns) {
  return {"AddLayerNorm_" + std::to_string(rows) + "x" + std::to_string(columns),
          {{rows, columns}, {rows, columns}, {columns}, {columns}, {columns}},
          [](const Inputs& x) {
            auto [sum, normed] = add_layer_norm(x[0], {x[1], weight(x[2])},
                                                {weight(x[3]), weight(x[4])}, x[0].scalar_type());
            return normed * 2 + sum;
          },
          [columns](const Inputs& x) {
            auto sum = x[0] + x[1] + x[2];
            return at::layer_norm(sum, {columns}, x[3], x[4]) * 2 + sum;
          }};
}

Case bare_norm_case(int64_t rows, int64_t columns) {
  return {
      "LayerNorm_" + std::to_string(rows) + "x" + std::to_string(columns),
      {{rows, columns}, {columns}, {columns}},
      [](const Inputs& x) {
        return add_layer_norm(x[0], {}, {weight(x[1]), weight(x[2])}, x[0].scalar_type()).normed;
      },
      [columns](const Inputs& x) { return at::layer_norm(x[0], {columns}, x[1], x[2]); }};
}

at::Tensor targets(int64_t rows, int64_t columns) {
  auto t = at::arange(rows).mul(7).remainder(columns);
  t[0] = -1;
  return t;
}

Case cross_entropy_case(int64_t rows, int64_t columns) {
  return {"CrossEntropy_" + std::to_string(rows) + "x" + std::to_string(columns),
          {{rows, columns}},
          [=](const Inputs& x) { return cross_entropy_sum(x[0] * 5, targets(rows, columns)); },
          [=](const Inputs& x) {
            return at::cross_entropy_loss(x[0] * 5, targets(rows, columns), {}, at::Reduction::Sum,
                                          -1);
          }};
}

Case linear_case() {
  return {"Linear",
          {{3, 5, 33}, {17, 33}},
          [](const Inputs& x) { return linear(x[0], weight(x[1])); },
          [](const Inputs& x) { return at::linear(x[0], x[1]); }};
}

class Parity : public testing::TestWithParam<Case> {
 protected:
  static Inputs in_double(Inputs all) {
    for (auto& x : all) x = x.to(at::kDouble);
    return all;
  }
};

TEST_P(Parity, EqualsTorchInFloat64) {
  const Case& c = GetParam();
  const auto all = inputs(c.sizes, at::kDouble);
  const auto plain = run(c.plain, all);
  at_every_level([&] {
    const auto ours = run(c.ours, all);
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(distance(ours[i], plain[i]), 1e-13) << i;
  });
}

TEST_P(Parity, IsAsAccurateAsTorchInFloat32) {
  const Case& c = GetParam();
  const auto all = inputs(c.sizes, at::kFloat);
  const auto plain = run(c.plain, all), exact = run(c.plain, in_double(all));
  at_every_level([&] {
    const auto ours = run(c.ours, all);
    for (size_t i = 0; i < ours.size(); ++i) {
      const double allowed = 4 * distance(plain[i], exact[i]) + 8 * std::ldexp(1.0, -24);
      EXPECT_LT(distance(ours[i], exact[i]), allowed) << i;
    }
  });
}

TEST_P(Parity, RepeatsItsBits) {
  const Case& c = GetParam();
  const auto all = inputs(c.sizes, at::kFloat);
  const auto first = run(c.ours, all), second = run(c.ours, all);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

TEST_P(Parity, HasTheSameBitsForAnyNumberOfThreads) {
  const Case& c = GetParam();
  if (c.name == "Linear") GTEST_SKIP() << "the product is the library's";
  const auto all = inputs(c.sizes, at::kFloat);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = run(c.ours, all);
  at::set_num_threads(3);
  const auto three = run(c.ours, all);
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], three[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Operations, Parity,
    testing::Values(attention_case({2, 1, 1, 1, 1}), attention_case({1, 7, 3, 5, 3}),
                    attention_case({2, 64, 2, 32, 2}), attention_case({1, 131, 2, 40, 2}),
                    attention_case({2, 70, 6, 8, 2}), attention_case({1, 9, 4, 5, 1}),
                    gelu_case(1, 1), gelu_case(37, 33), gelu_case(64, 128), norm_case(1, 3),
                    norm_case(67, 33), bare_norm_case(33, 48), cross_entropy_case(5, 3),
                    cross_entropy_case(40, 65), linear_case()),
    [](const auto& info) { return info.param.name; });

TEST(WithZerosBehind, KeepsTheValuesAndIsContiguousWhateverTheStrides) {
  const at::Tensor x =
      at::arange(2 * 3 * 5 * 7, at::kFloat).view({2, 5, 7, 3}).permute({0, 3, 1, 2});
  EXPECT_EQ(whole_vectors(5, x), 8);
  EXPECT_EQ(whole_vectors(5, x.to(at::kDouble)), 6);
  const at::Tensor padded = with_zeros_behind(x, 8, 12);
  EXPECT_EQ(padded.sizes(), at::IntArrayRef({2, 3, 8, 12}));
  EXPECT_TRUE(padded.is_contiguous());
  EXPECT_TRUE(at::equal(padded.narrow(2, 0, 5).narrow(3, 0, 7), x));
  EXPECT_EQ(padded.count_nonzero().item<int64_t>(), x.count_nonzero().item<int64_t>());
  EXPECT_TRUE(with_zeros_behind(x, 5, 7).is_contiguous());
}

TEST(Simd, KernelsAreThoseOfTheLevelInUse) {
  if (*base::usable_simd() == base::Simd::kBaseline) GTEST_SKIP() << "there is one level here";
  const Case c = attention_case({2, 64, 2, 32, 2});
  const auto all = inputs(c.sizes, at::kFloat);
  std::vector<at::Tensor> results;
  at_every_level([&] { results.push_back(c.ours(all)); });
  EXPECT_FALSE(at::equal(results[0], results[1])) << "vectors of other widths add in other orders";
  EXPECT_TRUE(at::equal(results.back(), c.ours(all)));
}

/// hanji's kernels, each with a dtype that it has here.
std::vector<std::pair<Attention, at::ScalarType>> own_kernels() {
  std::vector<std::pair<Attention, at::ScalarType>> all = {{Attention::kMath, at::kFloat}};
  if (has_tiles()) all.emplace_back(Attention::kTiles, at::kBFloat16);
  return all;
}

TEST(Attention, RowsDoNotDependOnTheRestOfTheBatch) {
  for (const auto& [attention, type] : own_kernels()) {
    const auto all = inputs({{4, 70, 96}, {96}}, at::kFloat);
    auto attend = [&, attention = attention, type = type](const at::Tensor& qkv) {
      const Inputs found = run(
          [&](const Inputs& x) {
            return causal_attention(x[0], weight(all[1]), {2, attention, 0, {}});
          },
          {qkv.to(type)});
      return at::cat(found, 2);
    };
    EXPECT_TRUE(at::equal(attend(all[0]).narrow(0, 0, 1), attend(all[0].narrow(0, 0, 1))));
    EXPECT_TRUE(at::equal(attend(all[0]).narrow(0, 2, 1).narrow(2, 0, 32),
                          attend(all[0].narrow(0, 2, 1)).narrow(2, 0, 32)));
  }
}

TEST(Attention, DoesNotSeeTheFuture) {
  for (const auto& [attention, type] : own_kernels()) {
    const auto all = inputs({{1, 40, 48}, {48}}, at::kFloat);
    auto changed = all[0].clone();
    changed.narrow(1, 25, 15).fill_(9);
    auto attend = [&, attention = attention, type = type](const at::Tensor& qkv) {
      return causal_attention(qkv.to(type), weight(all[1]), {2, attention, 0, {}}).narrow(1, 0, 25);
    };
    EXPECT_TRUE(at::equal(attend(all[0]), attend(changed)));
  }
}

TEST(Attention, BothPathsAgree) {
  for (const auto& [heads, kv_heads] : {std::pair{2, 2}, {4, 2}, {6, 1}}) {
    const int64_t row = (heads + 2 * kv_heads) * 16;
    const auto all = inputs({{2, 96, row}, {row}}, at::kFloat);
    auto run_path = [&](Attention path) {
      return run(
          [&](const Inputs& x) {
            return causal_attention(x[0], weight(x[1]), {heads, path, 0, {}, kv_heads});
          },
          all);
    };
    const auto flash = run_path(Attention::kFlash), math = run_path(Attention::kMath);
    EXPECT_LT(distance(math[0], flash[0]), 64 * std::ldexp(1.0, -24));
    EXPECT_LT(distance(math[1], flash[1]), 64 * std::ldexp(1.0, -24));
  }
}

/// Keys and values of 2 heads of 4, each of them 3 times, after queries of 6 heads.
at::Tensor repeated(const at::Tensor& qkv) {
  auto parts = qkv.split_with_sizes({24, 8, 8}, -1);
  for (size_t i : {1, 2}) {
    parts[i] = parts[i].unflatten(-1, {2, 4}).repeat_interleave(3, -2).flatten(-2);
  }
  return at::cat(parts, -1);
}

TEST(Attention, OfGroupsIsThatOfRepeatedHeads) {
  const auto all = inputs({{2, 13, 40}, {40}}, at::kDouble);
  for (const Attention path : {Attention::kMath, Attention::kFlash}) {
    for (const double dropped : {0.0, 0.25}) {
      const AttentionOptions grouped{6, path, dropped, {5, 7, 10, 2, {}}, 2};
      AttentionOptions every = grouped;
      every.kv_heads = 0;
      const auto one =
          run([&](const Inputs& x) { return causal_attention(x[0], weight(x[1]), grouped); }, all);
      const auto other = run(
          [&](const Inputs& x) {
            return causal_attention(repeated(x[0]), weight(repeated(x[1])), every);
          },
          all);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_LT(distance(one[i], other[i]), 1e-13) << i;
    }
  }
}

TEST(Attention, RefusesHeadsThatDoNotFit) {
  const auto all = inputs({{2, 13, 40}, {40}}, at::kFloat);
  for (const auto& [heads, kv_heads] : {std::pair{6, 4}, {6, 0}, {5, 2}, {0, 0}, {6, 12}}) {
    EXPECT_THROW(causal_attention(all[0], weight(all[1]), {heads, {}, 0, {}, kv_heads}), Error);
  }
}

/// Of queries, keys and values, the columns of heads [begin, end).
at::Tensor columns_of(const at::Tensor& qkv, int64_t heads, int64_t begin, int64_t end) {
  const auto by_head = qkv.unflatten(-1, {3, heads, -1});
  return by_head.narrow(-2, begin, end - begin).flatten(-3);
}

TEST(Attention, DropsOfPartsOfItsHeadsWhatItDropsOfAll) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Attention path : {Attention::kMath, Attention::kFlash}) {
      auto all = inputs({{2, 13, 3 * 6 * 4}, {3 * 6 * 4}}, at::kFloat);
      all[0] = all[0].to(type);
      const DropoutKey key{5, 7, 10, 2, {}};
      const auto whole = run(
          [&](const Inputs& x) {
            return causal_attention(x[0], weight(x[1]), {6, path, 0.25, key});
          },
          all);
      const auto parts = run(
          [&](const Inputs& x) {
            std::vector<at::Tensor> out;
            for (const auto& [begin, end] : {std::pair{0, 1}, {1, 4}, {4, 6}}) {
              AttentionOptions options{end - begin, path, 0.25, key};
              options.key.part = {1, begin, 6};
              out.push_back(causal_attention(columns_of(x[0], 6, begin, end),
                                             weight(columns_of(x[1], 6, begin, end)), options));
            }
            return at::cat(out, -1);
          },
          all);
      // libtorch sums the bias's gradient in an order that depends on the number of columns.
      for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(whole[i], parts[i])) << i;
    }
  }
}

TEST(Gelu, SurvivesLargeArguments) {
  auto x = at::tensor({-1e30F, -50.0F, 0.0F, 50.0F, 1e18F}).view({1, 5});
  auto out = bias_gelu(x, weight(at::zeros({5})));
  EXPECT_EQ(out[0][4].item<float>(), 1e18F);
  EXPECT_EQ(out[0][3].item<float>(), 50.0F);
  EXPECT_NEAR(out[0][1].item<float>(), 0, 1e-30);
}

/// A value rounds once, by 2^-8 at most; a gradient's input has rounded as well.
TEST(BFloat16, ComputesInFloat32AndRoundsOnce) {
  const Case c = gelu_case(37, 33);
  auto all = inputs(c.sizes, at::kFloat);
  all[0] = all[0].to(at::kBFloat16);
  const auto ours = run([](const Inputs& x) { return bias_gelu(x[0], weight(x[1])); }, all);
  const auto exact = run([](const Inputs& x) { return at::gelu(x[0] + x[1], "tanh"); },
                         {all[0].to(at::kDouble), all[1].to(at::kDouble)});
  EXPECT_EQ(ours[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(ours[2].scalar_type(), at::kFloat) << "sums of rows stay in float32";
  EXPECT_LT(distance(ours[0], exact[0]), std::ldexp(1.0, -8));
  for (size_t i = 1; i < 3; ++i) EXPECT_LT(distance(ours[i], exact[i]), std::ldexp(1.0, -7)) << i;
}

TEST(CrossEntropy, RefusesATargetBeyondTheVocabulary) {
  auto logits = at::zeros({2, 3});
  EXPECT_THROW(cross_entropy_sum(logits, at::tensor({0, 3}, at::kLong)), Error);
}

TEST(AddLayerNorm, SumsBlocksOfRowsAsIfEachWereAlone) {
  const std::vector<int64_t> blocks = {11, 3, 9};
  const Inputs all = inputs({{23, 33}, {23, 33}, {33}, {33}, {33}}, at::kFloat);
  const auto norm = [&](const at::Tensor& x, const at::Tensor& delta,
                        const std::vector<int64_t>& of) {
    Inputs weights;  // the delta's bias, weight, bias
    for (size_t i = 2; i < 5; ++i) {
      at::Tensor one = all[i].expand({std::ssize(of), 33});
      weights.push_back((of.size() == 1 ? all[i].clone() : one.clone()).set_requires_grad(true));
    }
    const auto of_several = of.size() == 1 ? std::vector<int64_t>() : of;
    const auto [sum, normed] =
        add_layer_norm(x, {delta, weight(weights[0])},
                       {weight(weights[1]), weight(weights[2]), 1e-5, of_several}, at::kFloat);
    (normed.square() + sum).sum().backward();
    Inputs gradients;
    for (const at::Tensor& one : weights) gradients.push_back(one.grad());
    return gradients;
  };
  const Inputs together = norm(all[0], all[1], blocks);
  int64_t begin = 0;
  for (size_t block = 0; block < blocks.size(); ++block) {
    const Inputs alone = norm(all[0].narrow(0, begin, blocks[block]),
                              all[1].narrow(0, begin, blocks[block]), {blocks[block]});
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(at::equal(together[i][static_cast<int64_t>(block)], alone[i]))
          << block << ' ' << i;
    }
    begin += blocks[block];
  }
  EXPECT_THROW(norm(all[0], all[1], {11, 3}), Error);
}

TEST(Convolution, HasTheBitsOfConv2dAndDefersTheGradientOfItsWeight) {
  const auto x = values({2, 3, 8, 8}, at::kFloat, 0.3).requires_grad_();
  const auto weight = values({4, 3, 3, 3}, at::kFloat, 0.7).requires_grad_();
  const auto g = values({2, 4, 4, 4}, at::kFloat, 0.9);
  const at::Tensor plain = at::conv2d(x, weight, {}, 2, 1);
  plain.backward(g);
  const at::Tensor gx = x.grad(), gw = weight.grad();
  const auto forget = [&] {
    for (const at::Tensor& leaf : {x, weight}) leaf.mutable_grad().reset();
  };
  forget();
  const ConvolutionOptions options{.stride = 2, .padding = 1};
  const at::Tensor ours = convolution(x, weight, options);
  EXPECT_TRUE(at::equal(ours, plain));
  ours.backward(g);
  EXPECT_TRUE(at::equal(x.grad(), gx));
  EXPECT_TRUE(at::equal(weight.grad(), gw));
  forget();
  const DeferGradients deferring;
  convolution(x, weight, options).backward(g);
  EXPECT_TRUE(at::equal(x.grad(), gx));
  EXPECT_FALSE(weight.grad().defined());
  ASSERT_EQ(deferring.deferred.size(), 1);
  const at::NoGradGuard as_in_backward;
  EXPECT_TRUE(at::equal(deferring.deferred[0].product(), gw));
}

TEST(Linear, DefersTheGradientOfItsWeightWithTheSameBits) {
  const auto x = values({5, 3}, at::kFloat, 0.3).requires_grad_();
  const Weight weight{values({4, 3}, at::kFloat, 0.7).requires_grad_(), at::zeros({4, 3})};
  const auto g = values({5, 4}, at::kFloat, 0.9);
  linear(x, weight).backward(g);
  const at::Tensor gx = x.grad().clone(), gw = weight.value.grad().clone();
  for (const at::Tensor& leaf : {x, weight.value}) leaf.mutable_grad().reset();
  weight.slot.zero_();
  {
    DeferGradients deferring;
    linear(x, weight).backward(g);
    EXPECT_TRUE(at::equal(x.grad(), gx));
    EXPECT_FALSE(weight.value.grad().defined());
    ASSERT_EQ(deferring.deferred.size(), 1);
    const at::Tensor later = [&] {
      const at::NoGradGuard as_in_backward;
      return deferring.deferred[0].product();
    }();
    EXPECT_TRUE(at::equal(later, gw));
    EXPECT_TRUE(at::equal(weight.slot, at::zeros({4, 3}))) << "another backward may want it";
    linear(x, {weight.value * 2, {}}).backward(g);
    EXPECT_TRUE(weight.value.grad().defined()) << "it is no leaf";
    EXPECT_EQ(deferring.deferred.size(), 1);
  }
  EXPECT_FALSE(defers_gradients());
}

TEST(Linear, WritesItsGradientIntoTheSlotOnlyOnce) {
  auto w = values({4, 3}, at::kFloat, 0.3).set_requires_grad(true);
  auto slot = at::zeros({4, 3});
  auto x = values({2, 3}, at::kFloat, 0.9);
  linear(x, {w, slot}).sum().backward();
  EXPECT_EQ(w.grad().data_ptr(), slot.data_ptr());
  const auto once = slot.clone();
  linear(x, {w, slot}).sum().backward();
  EXPECT_TRUE(at::equal(slot, once + once));
}

}  // namespace
}  // namespace hanji::compute
