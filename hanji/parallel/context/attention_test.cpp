#include "hanji/parallel/context/attention.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "hanji/base/status.h"
#include "hanji/compute/apply.h"
#include "hanji/parallel/context/ring.h"
#include "hanji/parallel/tensor/axis.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel::context {
namespace {

using compute::AttentionOptions;
using layout::ContextWay;
using tensor::AxisCall;

/// Of float64 sums in another order, of some ten terms of about 1.
constexpr double kApart = 1e-13;

struct ContextCase {
  int ranks = 2;
  ContextWay way = ContextWay::kUlysses;
  int64_t length = 11;
  int64_t heads = 6;
  int64_t kv_heads = 6;
  double dropout = 0;
};

std::string name_of_case(const ContextCase& of) {
  return fmt::format("{} on {} ranks, {} tokens, {} heads of {}",
                     layout::kContextWayNames[static_cast<size_t>(of.way)], of.ranks, of.length,
                     of.heads, of.kv_heads);
}

constexpr int64_t kBatch = 2, kWidth = 3;

struct Values {
  at::Tensor qkv, bias, gradient;
};

Values values_of(const ContextCase& of, at::ScalarType dtype = at::kDouble) {
  const int64_t row = (of.heads + 2 * of.kv_heads) * kWidth;
  const auto wave = [](at::IntArrayRef sizes, double pace) {
    return at::sin(at::arange(c10::multiply_integers(sizes), at::kDouble) * pace).view(sizes);
  };
  const at::Tensor qkv = wave({kBatch, of.length, row}, 0.7).to(dtype);
  return {qkv.clone().requires_grad_(), wave({row}, 1.3).requires_grad_(),
          wave({kBatch, of.length, of.heads * kWidth}, 0.37).to(dtype)};
}

AttentionOptions options_of(const ContextCase& of) {
  return {.heads = of.heads,
          .dropout = of.dropout,
          .key = {.seed = 3, .step = 1, .first_sample = 4, .layer = 2},
          .kv_heads = of.kv_heads};
}

struct Outcome {
  at::Tensor out, g_qkv, g_bias;
};

Outcome outcome_of(const Values& values, const Places& places, const ContextCase& of) {
  const at::Tensor qkv = own_tokens(values.qkv.detach(), 1, places).clone().requires_grad_();
  const at::Tensor out = causal_attention(qkv, {values.bias, {}}, options_of(of), places);
  out.backward(own_tokens(values.gradient, 1, places));
  return {out.detach(), qkv.grad(), values.bias.grad()};
}

void expect_near(const at::Tensor& found, const at::Tensor& expected, double most,
                 const std::string& where) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << where;
  EXPECT_LE((found - expected).abs().max().item<double>(),
            most * expected.abs().max().item<double>())
      << where;
}

void expect_attention_of_one(const ContextCase& of) {
  const Values whole = values_of(of);
  const Outcome expected = outcome_of(whole, {.length = of.length}, of);
  std::vector<at::Tensor> biases(of.ranks);
  test::run_ranks(of.ranks, [&](world::World& world) {
    const Places places = places_on(Axis(world.group()), of.length, of.way);
    const Outcome found = outcome_of(values_of(of), places, of);
    const std::string where = fmt::format("{}, rank {}", name_of_case(of), world.rank());
    expect_near(found.out, own_tokens(expected.out, 1, places), kApart, where);
    expect_near(found.g_qkv, own_tokens(expected.g_qkv, 1, places), kApart, where);
    biases[world.rank()] = found.g_bias;
  });
  at::Tensor sum = biases[0];
  for (int rank = 1; rank < of.ranks; ++rank) sum = sum + biases[rank];
  // Of keys the gradient is 0 but for rounding: it is what rounds of all.
  expect_near(sum, expected.g_bias, kApart, name_of_case(of) + ", bias");
}

class ContextAttention : public testing::TestWithParam<ContextWay> {};

TEST_P(ContextAttention, IsThatOfOneRankWhateverTheDegree) {
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t length : {8, 11, 13}) {
      expect_attention_of_one({ranks, GetParam(), length});
    }
  }
}

TEST_P(ContextAttention, IsThatOfOneRankWithHeadsThatShareKeysAndValues) {
  for (const int64_t kv_heads : {1, 2, 3}) {
    for (const int ranks : {2, 3, 4}) {
      expect_attention_of_one({ranks, GetParam(), 11, 6, kv_heads});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ContextAttention,
                         testing::Values(ContextWay::kUlysses, ContextWay::kRing),
                         [](const auto& info) {
                           return std::string(
                               layout::kContextWayNames[static_cast<size_t>(info.param)]);
                         });

TEST(UlyssesAttention, DropsTheWeightsOfOneRank) {
  expect_attention_of_one({3, ContextWay::kUlysses, 11, 6, 2, 0.3});
}

/// A head is computed by one rank as one process does.
TEST(UlyssesAttention, HasTheBitsOfOneRankInFloat32AndBFloat16) {
  using compute::Attention;
  const bool has_tiles =
      compute::check_attention(Attention::kTiles, base::Precision::kBFloat16).ok();
  for (const auto& [dtype, attention] : {std::pair{at::kFloat, Attention::kMath},
                                         {at::kBFloat16, Attention::kMath},
                                         {at::kBFloat16, Attention::kTiles}}) {
    if (attention == Attention::kTiles && !has_tiles) continue;
    const ContextCase of{3, ContextWay::kUlysses, 37, 5, 5};
    AttentionOptions options = options_of(of);
    options.attention = attention;
    const auto attended = [&](const Places& places) {
      const Values values = values_of(of, dtype);
      return causal_attention(own_tokens(values.qkv, 1, places),
                              {values.bias.detach().to(at::kFloat), {}}, options, places)
          .detach();
    };
    const at::Tensor expected = attended({.length = of.length});
    test::run_ranks(of.ranks, [&](world::World& world) {
      const Places places = places_on(Axis(world.group()), of.length, of.way);
      EXPECT_TRUE(at::equal(attended(places), own_tokens(expected, 1, places))) << dtype;
    });
  }
}

/// The parts of a softmax are merged in float32: no further from float64 than bf16 rounds, 2^-8, of sums of
/// values of about 1 whose weights add up to 1.
TEST(RingAttention, OfBFloat16IsAsExactAsItsResult) {
  const ContextCase of{4, ContextWay::kRing, 40, 6, 3};
  const Outcome expected = outcome_of(values_of(of), {.length = of.length}, of);
  test::run_ranks(of.ranks, [&](world::World& world) {
    const Places places = places_on(Axis(world.group()), of.length, of.way);
    Values values = values_of(of, at::kBFloat16);
    values.bias = values.bias.detach().to(at::kFloat).requires_grad_();
    const Outcome found = outcome_of(values, places, of);
    EXPECT_LE((found.out.to(at::kDouble) - own_tokens(expected.out, 1, places))
                  .abs()
                  .max()
                  .item<double>(),
              4 * std::exp2(-8));
  });
}

/// Gradients of queries and of keys and values of 8 tokens on 2 ranks, by lists that `change` has changed.
std::vector<at::Tensor> ring_gradients(const std::function<void(RingLists&)>& change) {
  std::vector<at::Tensor> all(4);
  test::run_ranks(2, [&](world::World& world) {
    const Places places = places_on(Axis(world.group()), 8, ContextWay::kRing);
    RingLists lists = ring_lists(places);
    change(lists);
    const auto wave = [&](at::IntArrayRef sizes, double pace) {
      return at::sin(at::arange(c10::multiply_integers(sizes), at::kDouble) * (pace + world.rank()))
          .view(sizes)
          .requires_grad_();
    };
    const at::Tensor queries = wave({1, 2, 4, 3}, 0.7), own = wave({2, 1, 2, 4, 3}, 0.3);
    ring_product(queries, own, places, lists).square().sum().backward();
    all[2 * world.rank()] = queries.grad();
    all[2 * world.rank() + 1] = own.grad();
  });
  return all;
}

double apart_from_the_ring(const std::function<void(RingLists&)>& change) {
  const auto right = ring_gradients([](RingLists&) {}), found = ring_gradients(change);
  double most = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    most = std::max(most, (found[i] - right[i]).abs().max().item<double>());
  }
  return most;
}

/// A bug that shipped: backward multiplies the first block at every step.
TEST(RingAttention, DiffersWhereBackwardReusesItsFirstBlock) {
  EXPECT_GT(apart_from_the_ring([](RingLists& lists) {
              for (layout::RingStep& step : lists.backward) step.receives = false;
            }),
            1e-3);
}

TEST(RingAttention, DiffersWhereAStepMeetsOtherTokens) {
  EXPECT_GT(apart_from_the_ring([](RingLists& lists) {
              lists.backward[1].first_query = lists.backward[1].first_query == 0 ? 2 : 0;
            }),
            1e-3);
  EXPECT_GT(apart_from_the_ring([](RingLists& lists) { lists.forward[0].is_own = false; }), 1e-3);
}

/// With oneDNN as the run's library small blocks are plain products: of bf16 on some processors, whose factors have
/// 8 bits, so that results of sums of three and eleven terms of about 1 are some 2^-7 off.
TEST(RingAttention, SmallBlocksUnderOneDnnAreThoseOfOneRank) {
  constexpr double kApartInBf16 = 0.05;
  const ContextCase of{2, ContextWay::kRing, 11, 6, 2};
  const Outcome expected = outcome_of(values_of(of), {.length = of.length}, of);
  const compute::AppliedForAWhile oneDnn({.gemm = base::Gemm::kOneDnn}, 1);  // of all threads
  test::run_ranks(of.ranks, [&](world::World& world) {
    const Places places = places_on(Axis(world.group()), of.length, of.way);
    Values values = values_of(of, at::kFloat);
    values.bias = values.bias.detach().to(at::kFloat).requires_grad_();
    const Outcome found = outcome_of(values, places, of);
    expect_near(found.out, own_tokens(expected.out, 1, places), kApartInBf16, "out");
    expect_near(found.g_qkv, own_tokens(expected.g_qkv, 1, places), kApartInBf16, "gradient");
  });
}

TEST(RingAttention, RefusesDropoutAndSamplesOfTooFewTokens) {
  const Axis axis = Axis::silent(0, 3, [](const AxisCall&) {});
  const ContextCase of{3, ContextWay::kRing, 12, 6, 6, 0.1};
  EXPECT_THROW(outcome_of(values_of(of), places_on(axis, 12, of.way), of), Error);
  EXPECT_THROW((void)places_on(axis, 5, of.way), Error);
  EXPECT_NO_THROW((void)places_on(axis, 5, ContextWay::kUlysses));
}

TEST(UlyssesAttention, RefusesFewerHeadsThanRanks) {
  const Axis axis = Axis::silent(0, 7, [](const AxisCall&) {});
  const ContextCase of{7};
  EXPECT_THROW(outcome_of(values_of(of), places_on(axis, of.length, of.way), of), Error);
}

/// What a rank asks for is what layout::context_calls() says, call by call.
TEST(ContextCalls, AreThoseThatAttentionMakes) {
  for (const ContextWay way : {ContextWay::kUlysses, ContextWay::kRing}) {
    for (const int64_t kv_heads : {6, 2}) {
      const ContextCase of{3, way, 13, 6, kv_heads};
      std::vector<std::vector<int64_t>> found, expected;
      const Axis axis = Axis::silent(0, of.ranks, [&](const AxisCall& call) {
        EXPECT_EQ(call.routine, schedule::Routine::kAllToAll);
        found.push_back(call.counts);
      });
      outcome_of(values_of(of), places_on(axis, of.length, way), of);
      for (layout::ContextCall& call :
           layout::context_calls({of.length, of.heads, kv_heads, kWidth, of.ranks}, way)) {
        for (int64_t& count : call.counts) count *= kBatch;
        expected.push_back(call.counts);
      }
      EXPECT_EQ(found, expected) << name_of_case(of);
    }
  }
}

}  // namespace
}  // namespace hanji::parallel::context
