// An Evoformer on an axis is that of one process: outputs, losses and every
// gradient, and what moves is what axial parallelism promises.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "hanji/base/status.h"
#include "hanji/layout/axial_block.h"
#include "hanji/models/evoformer.h"
#include "hanji/parallel/axial/triangle.h"
#include "hanji/parallel/recompute.h"
#include "hanji/test/run_ranks.h"

namespace hanji::models {
namespace {

using layout::TriangleWay;
using parallel::tensor::Axis;
using parallel::tensor::AxisCall;

constexpr std::array kWays = {TriangleWay::kGather, TriangleWay::kRing, TriangleWay::kChannels};

struct AxialCase {
  int ranks = 1;
  int64_t residues = 6;
  TriangleWay way = TriangleWay::kChannels;
  bool recompute = false;
  double dropout = 0;
  bool has_msa = true;
  bool has_attention = true;
  int64_t width = 6;
  base::Precision dtype = base::Precision::kFloat64;
  int64_t chunk_bytes = 0;
  bool rounds_weights = false;  ///< Those of blocks, to bf16.
};

EvoformerOptions axial_options(const AxialCase& c) {
  return {.blocks = 2,
          .width = c.width,
          .heads = 2,
          .classes = 3,
          .has_msa = c.has_msa,
          .has_attention = c.has_attention,
          .dropout = c.dropout,
          .dtype = c.dtype,
          .triangle = c.way,
          .chunk_bytes = c.chunk_bytes};
}

void randomise_parameters(layers::Model& model, bool rounds_weights = false) {
  int64_t number = 0;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& one = item.value();
    const at::Tensor place = at::arange(one.numel(), at::kDouble) + 977 * ++number;
    at::Tensor values = (place * 0.7).sin().view(one.sizes()) * 0.5;
    if (rounds_weights && item.key().starts_with("evoformer.")) values = values.to(at::kBFloat16);
    one.set_data(values.to(one.scalar_type()));
  }
}

/// Two samples with masked residues and elements, 5 sequences.
layers::Batch two_samples(const AxialCase& c) {
  const int64_t rows = c.has_msa ? 5 : c.residues;
  const auto states = [&](int64_t count, int64_t height, int64_t factor) {
    const at::Tensor place = at::arange(2 * height * c.residues, at::kLong);
    return (place * factor % count).view({2, height, c.residues}).contiguous();
  };
  at::Tensor inputs = states(13, rows, 7);
  inputs[0].select(1, 2).fill_(-1);
  inputs[1][1][0] = -1;
  if (!c.has_msa) inputs[0].select(0, 2).fill_(-1);
  at::Tensor targets = states(3, c.residues, 5);
  targets[1][0][1] = -1;
  return {.inputs = inputs,
          .targets = targets,
          .positions = {4, 6},
          .num_valid = 2 * c.residues * c.residues - 1,
          .counters = {.seed = 3, .step = 2}};
}

struct AxialResult {
  double loss = 0;
  int64_t count = 0;
  double metric = 0;
  at::Tensor logits;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};

layers::Batch first_sample(const AxialCase& c) {
  layers::Batch batch = two_samples(c);
  batch.inputs = batch.inputs.slice(0, 0, 1);
  batch.targets = batch.targets.slice(0, 0, 1);
  batch.positions = {4, 5};
  batch.num_valid = c.residues * c.residues;
  return batch;
}

AxialResult pass_of(const AxialCase& c, const Axis& axis, const layers::Batch& batch) {
  EvoformerOptions options = axial_options(c);
  options.axis = axis;
  EvoformerImpl model(options);
  randomise_parameters(model, c.rounds_weights);
  std::vector<layers::LayerScope> scopes;
  if (c.recompute) scopes.push_back(parallel::recompute(model.recomputed_layers()));
  const layers::Flow flow = model.forward({0, model.num_layers()}, {}, batch, scopes);
  AxialResult result;
  result.logits = flow[0].detach();
  result.metric = model.metric_sum(flow, batch);
  const layers::LossSum loss = model.loss(flow, batch);
  loss.sum.backward();
  result.loss = loss.sum.item<double>();
  result.count = loss.count;
  for (const auto& item : model.named_parameters()) {
    result.gradients.emplace_back(item.key(), item.value().grad());
  }
  return result;
}

AxialResult pass_of(const AxialCase& c, const Axis& axis) {
  return pass_of(c, axis, two_samples(c));
}

/// The sums of all ranks' losses, counts, metrics and gradients, and their logits joined.
AxialResult joined_pass(const AxialCase& c) {
  std::vector<AxialResult> of_ranks(c.ranks);
  test::run_ranks(c.ranks, [&](world::World& world) {
    of_ranks[world.rank()] = pass_of(c, Axis(world.group()));
  });
  AxialResult sum = of_ranks[0];
  std::vector<at::Tensor> logits = {sum.logits};
  for (int rank = 1; rank < c.ranks; ++rank) {
    const AxialResult& one = of_ranks[rank];
    sum.loss += one.loss;
    sum.count += one.count;
    sum.metric += one.metric;
    logits.push_back(one.logits);
    for (size_t i = 0; i < sum.gradients.size(); ++i) {
      at::Tensor& gradient = sum.gradients[i].second;
      gradient = gradient + one.gradients[i].second;
    }
  }
  sum.logits = at::cat(logits, 1);
  return sum;
}

double relative(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).abs().max() / expected.abs().max().clamp_min(1e-6)).item<double>();
}

/// Sums of some hundred terms in another order, in a stack of 18 operations: 18 x 10^2 x 2^-53.
constexpr double kAxialTolerance = 1e-12;

void expect_one_process(const AxialCase& c, const AxialResult& one) {
  const AxialResult found = joined_pass(c);
  const std::string which =
      fmt::format("{} ranks, {} residues, {}, recompute {}, dropout {}", c.ranks, c.residues,
                  layout::kTriangleWayNames[static_cast<size_t>(c.way)], c.recompute, c.dropout);
  EXPECT_LT(relative(found.logits, one.logits), kAxialTolerance) << which;
  EXPECT_NEAR(found.loss, one.loss, kAxialTolerance * one.loss) << which;
  EXPECT_EQ(found.count, one.count) << which;
  EXPECT_EQ(found.metric, one.metric) << which;
  for (size_t i = 0; i < one.gradients.size(); ++i) {
    const auto& [name, expected] = one.gradients[i];
    const at::Tensor& gradient = found.gradients[i].second;
    if (name.ends_with("msa_att_row.layer_norm_z.bias")) {
      // It shifts all logits: the gradient is zero, and both are rounding errors of it.
      EXPECT_LT(gradient.abs().max().item<double>(), 1e-9) << which << name;
      continue;
    }
    EXPECT_LT(relative(gradient, expected), kAxialTolerance) << which << " " << name;
  }
}

TEST(AxialEvoformer, IsThatOfOneProcessForAnyWayRanksAndResidues) {
  for (const int64_t residues : {6, 7}) {
    const AxialResult one = pass_of({.residues = residues}, Axis());
    for (const int ranks : {2, 3, 4}) {
      for (const TriangleWay way : kWays) {
        expect_one_process({.ranks = ranks, .residues = residues, .way = way}, one);
      }
    }
  }
}

TEST(AxialEvoformer, RecomputationAndDropoutToo) {
  for (const bool recompute : {false, true}) {
    for (const double dropout : {0.0, 0.25}) {
      const AxialResult one = pass_of({.residues = 7, .dropout = dropout}, Axis());
      for (const TriangleWay way : kWays) {
        expect_one_process({3, 7, way, recompute, dropout}, one);
      }
    }
  }
}

TEST(AxialEvoformer, OfPairsAloneToo) {
  for (const bool has_attention : {false, true}) {
    AxialCase c{.residues = 7, .has_msa = false, .has_attention = has_attention};
    const AxialResult one = pass_of(c, Axis());
    c.ranks = 3;
    for (const TriangleWay way : kWays) {
      c.way = way;
      expect_one_process(c, one);
    }
  }
}

/// Of each rank by itself: all have the whole loss and every whole gradient.
void expect_bits(const AxialCase& c, int blocks, const AxialResult& one) {
  const std::string which =
      fmt::format("{} ranks, {} residues, {} blocks, width {}, recompute {}, dropout {}", c.ranks,
                  c.residues, blocks, c.width, c.recompute, c.dropout);
  std::vector<at::Tensor> logits(c.ranks);
  test::run_ranks(c.ranks, [&](world::World& world) {
    const AxialResult found = pass_of(c, Axis(world.group()).in_blocks(blocks), first_sample(c));
    EXPECT_EQ(found.loss, one.loss) << which;
    EXPECT_EQ(found.count, one.count) << which;
    EXPECT_EQ(found.metric, one.metric) << which;
    for (size_t i = 0; i < one.gradients.size(); ++i) {
      EXPECT_TRUE(at::equal(found.gradients[i].second, one.gradients[i].second))
          << which << " " << one.gradients[i].first;
    }
    logits[world.rank()] = found.logits;
  });
  EXPECT_TRUE(at::equal(at::cat(logits, 1), one.logits)) << which;
}

TEST(AxialEvoformer, InBlocksNoBitDependsOnTheRanks) {
  const AxialCase small{.residues = 7, .dropout = 0.25, .dtype = base::Precision::kFloat32};
  AxialCase recomputed = small, wide = small, pairs = small;
  recomputed.recompute = true;
  wide.residues = 27;
  wide.width = 32;
  pairs.has_msa = false;
  // Two rows of logits at a time, of the three or four of a block, and one of outer products.
  AxialCase chunked = small, rounded = small, crooked = small;
  chunked.residues = 15;
  chunked.width = 16;
  chunked.chunk_bytes = int64_t{2} * 2 * 2 * 15 * 15 * 4;
  rounded.dtype = base::Precision::kBFloat16;
  // Rows of 360 bytes and matrices of 324, of which few begin at a cache line.
  crooked.residues = 9;
  crooked.width = 10;
  for (auto [c, blocks] : {std::pair(small, 4),
                           {small, 5},
                           {recomputed, 4},
                           {wide, 5},
                           {pairs, 4},
                           {chunked, 4},
                           {crooked, 5},
                           {rounded, 4}}) {
    const AxialResult one = pass_of(c, Axis().in_blocks(blocks), first_sample(c));
    for (c.ranks = 2; c.ranks <= 4; ++c.ranks) expect_bits(c, blocks, one);
  }
}

/// Blocks change the order of sums and nothing else.
TEST(AxialEvoformer, BlocksComputeWhatTheWholeDoes) {
  const AxialCase c{.residues = 7, .dropout = 0.25};
  const AxialResult whole = pass_of(c, Axis(), first_sample(c));
  const AxialResult found = pass_of(c, Axis().in_blocks(3), first_sample(c));
  EXPECT_LT(relative(found.logits, whole.logits), kAxialTolerance);
  EXPECT_NEAR(found.loss, whole.loss, kAxialTolerance * whole.loss);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    const auto& [name, expected] = whole.gradients[i];
    if (name.ends_with("msa_att_row.layer_norm_z.bias")) continue;  // zero but for rounding
    EXPECT_LT(relative(found.gradients[i].second, expected), kAxialTolerance) << name;
  }
}

/// Of the size of all expected elements together.
double distance(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (found[i].to(at::kDouble) - expected[i]).pow(2).sum().item<double>();
    size += expected[i].pow(2).sum().item<double>();
  }
  return std::sqrt(difference / size);
}

std::vector<at::Tensor> gradients_of(const AxialResult& result) {
  std::vector<at::Tensor> all;
  for (const auto& [name, gradient] : result.gradients) all.push_back(gradient);
  return all;
}

/// From what a block reads to what it adds, an operation rounds to bf16 at most eight times: its norm's output, the
/// weight, the projection, a gate, logits, probabilities, their product with values, and the sum over ranks; and its
/// backward as often. What one of these changes, of 2^-9 of each element, is measured, by weights that are rounded
/// and computed with in float64. To first order eight change eight times as much, were all of one sign.
TEST(AxialEvoformer, OfBFloat16IsAsExactAsItsRoundings) {
  constexpr double kRoundings = 8;
  AxialCase c{.residues = 7, .width = 32};
  const AxialResult exact = pass_of(c, Axis());
  c.rounds_weights = true;
  const AxialResult rounded = pass_of(c, Axis());
  const double of_logits = distance({rounded.logits}, {exact.logits});
  const double of_gradients = distance(gradients_of(rounded), gradients_of(exact));
  c.rounds_weights = false;
  c.dtype = base::Precision::kBFloat16;
  for (c.ranks = 1; c.ranks <= 3; ++c.ranks) {
    for (const TriangleWay way : kWays) {
      for (const bool recompute : {false, true}) {
        c.way = way;
        c.recompute = recompute;
        const AxialResult found = joined_pass(c);
        EXPECT_EQ(found.logits.scalar_type(), at::kFloat);
        EXPECT_LT(distance({found.logits}, {exact.logits}), kRoundings * of_logits) << c.ranks;
        EXPECT_LT(distance(gradients_of(found), gradients_of(exact)), kRoundings * of_gradients)
            << c.ranks << " " << static_cast<int>(way);
        EXPECT_GT(distance({found.logits}, {exact.logits}), 1e-4) << "it does round";
      }
    }
  }
}

TEST(AxialEvoformer, BlocksMultiplyTrianglesByChannelsAlone) {
  for (const TriangleWay way : {TriangleWay::kGather, TriangleWay::kRing}) {
    const AxialCase c{.residues = 7, .way = way};
    EXPECT_THROW(pass_of(c, Axis().in_blocks(3), first_sample(c)), Error);
  }
  const AxialCase few{.residues = 4};
  EXPECT_THROW(pass_of(few, Axis().in_blocks(5), first_sample(few)), Error) << "blocks of no row";
}

/// Elements that all ranks of a silent axis send together in a forward, by AxisCall; of `dtype` alone, if one is given.
int64_t sent_elements(const std::vector<AxisCall>& calls, int64_t ranks,
                      std::optional<at::ScalarType> dtype = {}) {
  int64_t sent = 0;
  for (const AxisCall& call : calls) {
    if (dtype && call.dtype != *dtype) continue;
    const bool even = call.counts.size() == 1;
    if (call.routine == schedule::Routine::kAllToAll) {
      for (int64_t i = 0; i < ranks; ++i) {
        for (int64_t j = 0; j < ranks; ++j) {
          if (i != j) sent += call.counts[even ? 0 : i * ranks + j];
        }
      }
    } else {
      const int64_t all =
          even ? ranks * call.counts[0] : std::reduce(call.counts.begin(), call.counts.end());
      sent += (ranks - 1) * all;
    }
  }
  return sent;
}

/// Elements that each of p ranks sends in a block, q = (p - 1) / p: q [(2 s N c_m + 8 N^2 c_z) / p + 16 N^2 +
/// 32 s N] of AlphaFold's 4 heads 32 wide; here biases have 4 H channels and the outer product c_z / H.
TEST(AxialEvoformer, WhatMovesIsTheFormula) {
  constexpr int64_t n = 8, s = 4, c = 8, heads = 2, p = 4;
  std::map<std::pair<TriangleWay, int64_t>, int64_t> sent;
  for (const TriangleWay way : kWays) {
    for (const int64_t blocks : {1, 2}) {
      std::vector<AxisCall> calls;
      EvoformerOptions options{.blocks = blocks, .width = c, .heads = heads, .triangle = way};
      options.axis = Axis::silent(1, p, [&](const AxisCall& call) { calls.push_back(call); });
      const auto model = make_evoformer(options);
      const layers::Batch batch{.inputs = at::zeros({1, s, n}, at::kLong)};
      const at::NoGradGuard no_grad;
      model->forward({0, blocks + 2}, {}, batch);
      sent[{way, blocks}] = sent_elements(calls, p);
    }
  }
  const auto of_block = [&](TriangleWay way) { return sent.at({way, 2}) - sent.at({way, 1}); };
  const int64_t biases = 4 * heads * n * n, outer = c / heads * s * n, msa = 2 * s * n * 2 * c;
  const int64_t gathered = (p - 1) * (biases + outer), moved_msa = (p - 1) * msa / p;
  const int64_t pair = n * n * c, turns = 2 * (p - 1) * pair / p;
  EXPECT_EQ(of_block(TriangleWay::kChannels), gathered + moved_msa + 8 * (p - 1) * pair / p);
  EXPECT_EQ(of_block(TriangleWay::kGather), gathered + moved_msa + turns + 2 * (p - 1) * pair);
  EXPECT_EQ(of_block(TriangleWay::kRing), of_block(TriangleWay::kGather));
}

/// Of the same block the operands of triangles, biases and the outer product's projection in two bytes; sequences and
/// pairs as they are, in four.
TEST(AxialEvoformer, OfBFloat16WhatIsAddedMovesInTwoBytes) {
  constexpr int64_t n = 8, s = 4, c = 8, heads = 2, p = 4;
  std::array<int64_t, 2> narrow = {}, wide = {};
  for (const int64_t blocks : {1, 2}) {
    std::vector<AxisCall> calls;
    EvoformerOptions options{.blocks = blocks, .width = c, .heads = heads};
    options.dtype = base::Precision::kBFloat16;
    options.axis = Axis::silent(1, p, [&](const AxisCall& call) { calls.push_back(call); });
    const at::NoGradGuard no_grad;
    make_evoformer(options)->forward({0, blocks + 2}, {},
                                     {.inputs = at::zeros({1, s, n}, at::kLong)});
    narrow[blocks - 1] = sent_elements(calls, p, at::kBFloat16);
    wide[blocks - 1] = sent_elements(calls, p, at::kFloat);
  }
  const int64_t pair = n * n * c;
  EXPECT_EQ(narrow[1] - narrow[0],
            (p - 1) * (4 * heads * n * n + c / heads * s * n) + 6 * (p - 1) * pair / p);
  EXPECT_EQ(wide[1] - wide[0], (p - 1) * 2 * s * n * 2 * c / p + 2 * (p - 1) * pair / p);
}

/// `hanji explain axial` sums up the same, for sizes that ranks do not divide too.
TEST(AxialEvoformer, WhatMovesIsWhatIsExplained) {
  for (const TriangleWay way : kWays) {
    for (const bool has_msa : {true, false}) {
      const layout::AxialBlock block{.residues = 7,
                                     .sequences = has_msa ? 5 : 0,
                                     .width = 6,
                                     .heads = 2,
                                     .ranks = 3,
                                     .triangle = way};
      int64_t explained = 0;
      for (const layout::AxialMove& move : axial_moves(block)) explained += move.forward;
      std::array<int64_t, 2> sent = {};
      for (const int64_t blocks : {1, 2}) {
        std::vector<AxisCall> calls;
        EvoformerOptions options{
            .blocks = blocks, .width = 6, .heads = 2, .has_msa = has_msa, .triangle = way};
        options.axis = Axis::silent(0, 3, [&](const AxisCall& call) { calls.push_back(call); });
        const layers::Batch batch{.inputs = at::zeros({1, has_msa ? 5 : 7, 7}, at::kLong)};
        const at::NoGradGuard no_grad;
        make_evoformer(options)->forward({0, blocks + 2}, {}, batch);
        sent[blocks - 1] = sent_elements(calls, 3);
      }
      EXPECT_EQ(sent[1] - sent[0], explained) << static_cast<int>(way) << has_msa;
    }
  }
}

TEST(AxialEvoformer, NoRankIsWithoutRows) {
  EvoformerOptions options = axial_options({});
  options.axis = Axis::silent(0, 7, [](const AxisCall&) {});
  EXPECT_THROW(make_evoformer(options)->forward({0, 1}, {}, two_samples({})), Error);
}

}  // namespace
}  // namespace hanji::models
