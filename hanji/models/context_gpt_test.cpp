// A GPT whose ranks have parts of each sample's tokens computes what the whole one does.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <mutex>

#include "hanji/models/generate.h"
#include "hanji/models/gpt.h"
#include "hanji/parallel/recompute.h"
#include "hanji/test/run_ranks.h"

namespace hanji::models {
namespace {

using layout::ContextWay;
using parallel::tensor::Axis;
using testing::HasSubstr;

/// Of float64 sums in another order, of some thousand terms.
constexpr double kOtherOrder = 1e-12;

/// Sizes that few degrees divide.
GptOptions with_uneven_sizes(ContextWay way) {
  GptOptions options;
  options.layers = 2;
  options.heads = 6;
  options.width = 48;
  options.block = 11;
  options.vocabulary = 65;
  options.dtype = base::Precision::kFloat64;
  options.context_way = way;
  return options;
}

layers::Batch three_samples(const GptOptions& options) {
  const auto index = at::arange(3 * options.block, at::kLong);
  const auto targets = (index * 5 + 3).remainder(options.vocabulary);
  targets[1] = -1;
  return {.inputs = (index * 11).remainder(options.vocabulary).view({3, options.block}),
          .targets = targets.view({3, options.block}),
          .positions = {4, 7},
          .num_valid = 3 * options.block - 1,
          .counters = {.seed = 5, .step = 2}};
}

/// One forward and backward: what all ranks have together.
struct Sums {
  double loss = 0;
  int64_t count = 0;
  std::vector<at::Tensor> gradients;

  void add(GptImpl& model, bool recompute) {
    std::vector<layers::LayerScope> scopes;
    if (recompute) scopes.push_back(parallel::recompute(model.recomputed_layers()));
    const layers::LossSum mine = model.loss_sum(three_samples(model.options()), scopes);
    mine.sum.backward();
    loss += mine.sum.item<double>();
    count += mine.count;
    size_t i = 0;
    for (const at::Tensor& one : model.parameters()) {
      if (gradients.size() == i) gradients.push_back(at::zeros_like(one.detach()));
      if (one.grad().defined()) gradients[i].add_(one.grad());
      ++i;
    }
  }
};

void expect_the_sums_of_one(const GptOptions& options, int degree, bool recompute = false) {
  GptImpl model(options);
  Sums whole, found;
  whole.add(model, false);
  std::mutex mutex;
  test::run_ranks(degree, [&](world::World& world) {
    GptOptions own = options;
    own.context = Axis(world.group());
    GptImpl part(own);
    Sums mine;
    mine.add(part, recompute);
    const std::lock_guard lock(mutex);
    found.loss += mine.loss;
    found.count += mine.count;
    if (found.gradients.empty()) found.gradients.resize(mine.gradients.size());
    for (size_t i = 0; i < mine.gradients.size(); ++i) {
      at::Tensor& sum = found.gradients[i];
      sum = sum.defined() ? sum + mine.gradients[i] : mine.gradients[i];
    }
  });
  const std::string where =
      fmt::format("{} ranks, way {}", degree, static_cast<int>(options.context_way));
  EXPECT_NEAR(found.loss, whole.loss, kOtherOrder * whole.loss) << where;
  EXPECT_EQ(found.count, whole.count) << where;
  const auto names = model.named_parameters().keys();
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    EXPECT_LE((found.gradients[i] - whole.gradients[i]).abs().max().item<double>(),
              kOtherOrder * whole.gradients[i].abs().max().item<double>())
        << names[i] << ", " << where;
  }
}

class ContextGpt : public testing::TestWithParam<ContextWay> {};

TEST_P(ContextGpt, HasTheLossesAndGradientsOfOneRankWhateverTheDegree) {
  for (const int degree : {2, 3, 4}) expect_the_sums_of_one(with_uneven_sizes(GetParam()), degree);
}

TEST_P(ContextGpt, HasThemWithHeadsThatShareKeysAndValuesAHeadOfItsOwnAndRecomputation) {
  GptOptions options = with_uneven_sizes(GetParam());
  options.kv_heads = 2;
  options.tied = false;
  expect_the_sums_of_one(options, 3, /*recompute=*/true);
}

INSTANTIATE_TEST_SUITE_P(Ways, ContextGpt, testing::Values(ContextWay::kUlysses, ContextWay::kRing),
                         [](const auto& info) {
                           return std::string(
                               layout::kContextWayNames[static_cast<size_t>(info.param)]);
                         });

TEST(ContextGptUnderUlysses, DropsWhatOneRankDrops) {
  GptOptions options = with_uneven_sizes(ContextWay::kUlysses);
  options.dropout = 0.2;
  for (const int degree : {2, 3}) expect_the_sums_of_one(options, degree);
  expect_the_sums_of_one(options, 4, /*recompute=*/true);
}

TEST(ContextGptUnderRing, HasMoreRanksThanHeads) {
  GptOptions options = with_uneven_sizes(ContextWay::kRing);
  options.heads = 2;
  expect_the_sums_of_one(options, 5);
}

/// The first of the samples: a block of tokens is one of a sample.
layers::Batch one_sample(const GptOptions& options) {
  layers::Batch batch = three_samples(options);
  batch.inputs = batch.inputs.slice(0, 0, 1);
  batch.targets = batch.targets.slice(0, 0, 1);
  batch.positions = {4, 5};
  batch.num_valid = options.block - 1;
  return batch;
}

struct Learned {
  double loss = 0;
  std::vector<at::Tensor> gradients;
};

Learned learned(const GptOptions& options, bool recompute) {
  GptImpl model(options);
  std::vector<layers::LayerScope> scopes;
  if (recompute) scopes.push_back(parallel::recompute(model.recomputed_layers()));
  const layers::LossSum mine = model.loss_sum(one_sample(options), scopes);
  EXPECT_EQ(mine.count, options.block - 1) << "of all ranks' tokens";
  mine.sum.backward();
  Learned result{mine.sum.item<double>(), {}};
  for (const at::Tensor& one : model.parameters()) result.gradients.push_back(one.grad());
  return result;
}

/// Of tokens in 5 blocks, which no degree but 1 and 5 shares evenly, where another order would be seen.
void expect_the_bits_of_one(GptOptions options, bool recompute = false) {
  options.token_blocks = 5;
  const Learned whole = learned(options, false);
  for (const int degree : {2, 3, 5}) {
    test::run_ranks(degree, [&](world::World& world) {
      GptOptions own = options;
      own.context = Axis(world.group());
      const Learned mine = learned(own, recompute);
      EXPECT_EQ(mine.loss, whole.loss) << degree << " ranks";
      const auto names = GptImpl(options).named_parameters().keys();
      for (size_t i = 0; i < names.size(); ++i) {
        EXPECT_TRUE(at::equal(mine.gradients[i], whole.gradients[i]))
            << names[i] << ", rank " << world.rank() << " of " << degree;
      }
    });
  }
}

TEST(ContextGptInBlocks, HasTheBitsOfOneProcess) {
  for (const auto dtype : {base::Precision::kFloat32, base::Precision::kBFloat16}) {
    GptOptions options = with_uneven_sizes(ContextWay::kUlysses);
    options.dtype = dtype;
    expect_the_bits_of_one(options);
  }
}

/// A block's rows begin anywhere in a cache line.
TEST(ContextGptInBlocks, HasThemWithRowsOfOddSizes) {
  for (const int64_t width : {20, 30, 50}) {
    GptOptions options = with_uneven_sizes(ContextWay::kUlysses);
    options.dtype = base::Precision::kFloat32;
    options.heads = 5;
    options.width = width;
    options.block = 43;
    expect_the_bits_of_one(options);
  }
}

TEST(ContextGptInBlocks, HasThemWithDropoutAHeadOfItsOwnBlocksOfFeaturesAndRecomputation) {
  GptOptions options = with_uneven_sizes(ContextWay::kUlysses);
  options.dtype = base::Precision::kFloat32;
  options.dropout = 0.2;
  options.tied = false;
  options.axis = Axis().in_blocks(3);
  expect_the_bits_of_one(options, /*recompute=*/true);
}

/// Each block alone: its sums are of its rows.
TEST(ContextGptInBlocks, HasTheGradientsOfWholeProductsToRounding) {
  GptOptions options = with_uneven_sizes(ContextWay::kUlysses);
  const Learned whole = learned(options, false);
  options.token_blocks = 5;
  const Learned blocks = learned(options, false);
  EXPECT_NEAR(blocks.loss, whole.loss, kOtherOrder * whole.loss);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    EXPECT_LE((blocks.gradients[i] - whole.gradients[i]).abs().max().item<double>(),
              kOtherOrder * whole.gradients[i].abs().max().item<double>())
        << i;
  }
}

TEST(ContextGptOfAPrompt, ContinuesItOnEachRankAlone) {
  const GptOptions options = with_uneven_sizes(ContextWay::kUlysses);
  const GenerateOptions generated{
      .num_tokens = 20, .block = options.block, .vocabulary = options.vocabulary};
  const std::vector<int64_t> prompt{7};
  GptImpl whole(options);
  const std::vector<int64_t> expected = generate(whole, prompt, generated);
  test::run_ranks(3, [&](world::World& world) {
    GptOptions own = options;
    own.context = Axis(world.group());
    GptImpl model(own);
    // The last rank computes nothing, and nobody waits for it.
    if (world.rank() < 2) {
      EXPECT_EQ(generate(model, prompt, generated), expected);
    }
  });
}

}  // namespace
}  // namespace hanji::models
