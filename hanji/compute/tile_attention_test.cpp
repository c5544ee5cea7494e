#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <cmath>

#include "hanji/base/status.h"
#include "hanji/compute/test_operations.h"

namespace hanji::compute {
namespace {

/// What roundings to bf16 may change of attention in tiles, to first order, from values in float64. A score
/// is off by 2 roundings of the sum of its absolute terms: so are a weight's numerator and denominator,
/// and the weight rounds itself (`apart`, of itself). Gradients of scores are weight (d - mean of d) with d
/// of sums that rounded values enter, and round themselves. The output rounds once.
Inputs tile_bounds(const Inputs& x, int64_t heads, int64_t kv_heads) {
  const double u = std::ldexp(1.0, -8), slack = 1.1;
  const int64_t length = x[0].size(1), size = x[0].size(2) / (heads + 2 * kv_heads);
  const int64_t kv_width = kv_heads * size, group = heads / kv_heads;
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  auto parts = (x[0] + x[1]).split_with_sizes({heads * size, kv_width, kv_width}, 2);
  for (auto& part : parts) part = part.unflatten(2, {-1, size}).transpose(1, 2);
  for (size_t i : {1, 2}) parts[i] = parts[i].repeat_interleave(group, 1);
  const auto above = at::ones({length, length}, at::kBool).triu(1);
  const auto weights =
      (parts[0].matmul(parts[1].transpose(2, 3)) * scale).masked_fill(above, -INFINITY).softmax(-1);
  for (auto& part : parts) part = part.abs();
  const auto &q = parts[0], &k = parts[1], &v = parts[2];
  const double score =
      (q.matmul(k.transpose(2, 3)) * scale).masked_fill(above, 0).max().item<double>();
  const double apart = slack * (4 * score + 1) * u + std::ldexp(static_cast<double>(length), -22);
  const auto g = values({x[0].size(0), length, heads * size}, at::kFloat, 0.37)
                     .to(at::kBFloat16)
                     .to(at::kDouble)
                     .abs()
                     .unflatten(2, {heads, size})
                     .transpose(1, 2);
  const auto d = g.matmul(v.transpose(2, 3));
  const auto slopes = weights * (d + (weights * d).sum(-1, true)) * (apart + 4 * u);
  const auto merged = [&](const at::Tensor& of_heads) {
    return of_heads.transpose(1, 2).flatten(2);
  };
  const auto shared = [&](const at::Tensor& of_heads) {
    return merged(of_heads.unflatten(1, {kv_heads, group}).sum(2));
  };
  const auto g_qkv =
      at::cat({merged(slopes.matmul(k)) * scale, shared(slopes.transpose(2, 3).matmul(q)) * scale,
               shared(weights.transpose(2, 3).matmul(g)) * (apart + 2 * u)},
              2);
  return {merged(weights.matmul(v)) * (apart + 2 * u), g_qkv, g_qkv.sum({0, 1})};
}

/// Values in [-1, 1], of queries, keys and values with their biases.
Inputs tile_inputs(const AttentionSizes& s) {
  const int64_t row = (s.heads + 2 * s.kv_heads) * s.size;
  Inputs all = inputs({{s.batch, s.length, row}, {row}}, at::kFloat);
  return {(all[0] * 0.375).to(at::kBFloat16), all[1] * 0.125};
}

Inputs run_tiles(const AttentionSizes& s, const Inputs& all) {
  return run(
      [&](const Inputs& x) {
        return causal_attention(x[0], weight(x[1]),
                                {s.heads, Attention::kTiles, 0, {}, s.kv_heads});
      },
      all);
}

constexpr AttentionSizes kTiled[] = {{2, 1, 1, 1, 1},    {1, 7, 3, 5, 3},     {2, 64, 2, 64, 2},
                                     {1, 100, 4, 40, 2}, {1, 131, 6, 8, 1},   {2, 256, 2, 64, 2},
                                     {1, 300, 2, 80, 1}, {1, 600, 1, 128, 1}, {1, 33, 2, 33, 2}};

TEST(TileAttention, IsOffByItsRoundingsFromFloat64) {
  if (!has_tiles()) GTEST_SKIP() << "this processor multiplies no tiles";
  for (const AttentionSizes& s : kTiled) {
    const Inputs all = tile_inputs(s);
    const Inputs in_double = {all[0].to(at::kDouble), all[1].to(at::kDouble)};
    const auto exact =
        run([&](const Inputs& x) { return plain_attention(x, s.heads, s.kv_heads); }, in_double);
    const auto bounds = tile_bounds(in_double, s.heads, s.kv_heads);
    at_every_level([&] {
      const auto ours = run_tiles(s, all);
      EXPECT_EQ(ours[0].scalar_type(), at::kBFloat16);
      EXPECT_EQ(ours[2].scalar_type(), at::kFloat) << "sums of rows stay in float32";
      for (size_t i = 0; i < ours.size(); ++i) {
        const auto off = (ours[i].to(at::kDouble) - exact[i]).abs();
        EXPECT_TRUE((off <= bounds[i] + 1e-6).all().item<bool>())
            << "T " << s.length << ", d " << s.size << ", result " << i << ": "
            << (off / (bounds[i] + 1e-6)).max().item<double>() << " of what it may be";
      }
    });
  }
}

/// From 0 to 7, others in each row and column.
at::Tensor whole_numbers(int64_t rows, int64_t columns) {
  return (at::arange(rows).mul(3).unsqueeze(1) + at::arange(columns).mul(7)).remainder(8);
}

/// Weights of 1 and whole numbers leave only the result to round: a wrong mask, pair or tile shows.
TEST(TileAttention, OfEqualScoresIsTheMeanSoFar) {
  if (!has_tiles()) GTEST_SKIP() << "this processor multiplies no tiles";
  for (const int64_t length : {1, 7, 64, 100, 256, 300}) {
    for (const int64_t size : {5, 64}) {
      const at::Tensor of_values = whole_numbers(length, size).unsqueeze(0);
      const auto zeros = at::zeros({1, length, 2 * size}, at::kLong);
      const auto qkv = at::cat({zeros, of_values}, 2).to(at::kBFloat16);
      const auto found =
          causal_attention(qkv, weight(at::zeros({3 * size})), {1, Attention::kTiles, 0, {}});
      const auto counts = at::arange(1, length + 1, at::kDouble).view({1, length, 1});
      const auto exact = of_values.to(at::kDouble).cumsum(1) / counts;
      EXPECT_LE(((found.to(at::kDouble) - exact).abs() - exact * std::ldexp(1.0001, -8))
                    .max()
                    .item<double>(),
                0)
          << length << " x " << size;
    }
  }
}

/// Whatever was added up before the largest score is scaled to it. A weight and the result round.
TEST(TileAttention, OfOneLargeScoreIsNearItsValueWhereverItIs) {
  if (!has_tiles()) GTEST_SKIP() << "this processor multiplies no tiles";
  constexpr int64_t kLength = 600, kSize = 64;
  const at::Tensor of_values = whole_numbers(kLength, kSize);
  for (const int64_t large : {10, 255, 256, 290, 599}) {
    auto qkv = at::zeros({kLength, 3 * kSize}, at::kDouble);
    qkv.narrow(1, 0, 1).fill_(8);             // of queries, times 6 over the root of 64
    qkv[large].narrow(0, kSize, 1).fill_(6);  // of keys
    qkv.narrow(1, 2 * kSize, kSize).copy_(of_values);
    const Inputs all = {qkv.unsqueeze(0), at::zeros({3 * kSize}, at::kDouble)};
    const auto found = causal_attention(all[0].to(at::kBFloat16), weight(all[1].to(at::kFloat)),
                                        {1, Attention::kTiles, 0, {}});
    EXPECT_LT((found - plain_attention(all, 1, 1)).abs().max().item<double>(),
              2 * 7 * std::ldexp(1.0, -8))
        << large;
  }
}

TEST(TileAttention, HasTheSameBitsAgainAndForAnyNumberOfThreads) {
  if (!has_tiles()) GTEST_SKIP() << "this processor multiplies no tiles";
  const AttentionSizes s{3, 150, 4, 48, 2};
  const auto all = tile_inputs(s);
  const int before = at::get_num_threads();
  std::vector<Inputs> found;
  for (const int threads : {1, 2, 3, 1}) {
    at::set_num_threads(threads);
    found.push_back(run_tiles(s, all));
  }
  at::set_num_threads(before);
  for (const Inputs& other : found) {
    for (size_t i = 0; i < other.size(); ++i) EXPECT_TRUE(at::equal(other[i], found[0][i])) << i;
  }
}

TEST(TileAttention, PassesWhatIsNoNumberOn) {
  if (!has_tiles()) GTEST_SKIP() << "this processor multiplies no tiles";
  const AttentionSizes s{1, 64, 1, 16, 1};
  for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
    Inputs all = tile_inputs(s);
    all[0].index_put_({at::tensor(0), at::tensor(50), at::tensor(3)},
                      at::full({}, bad, at::kBFloat16));
    const auto found = run_tiles(s, all);
    EXPECT_TRUE(found[0].narrow(1, 50, 1).isnan().all().item<bool>());
    EXPECT_TRUE(found[0].narrow(1, 0, 50).isfinite().all().item<bool>());
    EXPECT_TRUE(found[1].narrow(2, 0, 16).narrow(1, 50, 1).isnan().all().item<bool>());
  }
}

TEST(TileAttention, IsRefusedWhereItDoesNotMultiply) {
  const auto all = inputs({{2, 13, 48}, {48}}, at::kFloat);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const AttentionOptions options{2, Attention::kTiles, 0, {}};
    EXPECT_THROW(causal_attention(all[0].to(type), weight(all[1].to(type)), options), Error);
  }
  for (const auto precision : {base::Precision::kFloat32, base::Precision::kFloat64}) {
    const Status status = check_attention(Attention::kTiles, precision);
    EXPECT_EQ(status.code(), Code::kUnsupported);
    EXPECT_THAT(status.message(), testing::HasSubstr("set compute.dtype = \"bf16\""));
    EXPECT_TRUE(check_attention(Attention::kMath, precision).ok());
  }
}

}  // namespace
}  // namespace hanji::compute
