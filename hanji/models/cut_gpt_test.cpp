// A GPT whose layers an axis cuts trains as the whole one does.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>

#include "hanji/base/status.h"
#include "hanji/models/generate.h"
#include "hanji/models/gpt.h"
#include "hanji/parallel/recompute.h"
#include "hanji/test/run_ranks.h"

namespace hanji::models {
namespace {

using parallel::tensor::Axis;
using parallel::tensor::AxisCall;
using testing::HasSubstr;

/// Float64 sums in another order: some thousand roundings of 1e-16 of what is summed, through ten steps
/// whose rate lets them grow little.
constexpr double kApart = 1e-12;
constexpr int kSteps = 10;
constexpr double kRate = 0.02;

/// Sizes that few degrees divide.
GptOptions uneven() {
  GptOptions options;
  options.layers = 2;
  options.heads = 6;
  options.width = 96;
  options.block = 10;
  options.vocabulary = 65;
  options.dtype = base::Precision::kFloat64;
  return options;
}

layers::Batch batch_of(const GptOptions& options, int64_t step) {
  const auto index = at::arange(3 * options.block, at::kLong) + 7 * step;
  const auto targets = (index * 5 + 3).remainder(options.vocabulary);
  targets[1] = -1;
  return {.inputs = (index * 11).remainder(options.vocabulary).view({3, options.block}),
          .targets = targets.view({3, options.block}),
          .positions = {0, 3},
          .num_valid = 3 * options.block - 1};
}

/// The part of a whole parameter that a cut model has.
at::Tensor part_of(const layout::Cut& cut, const std::string& name, const at::Tensor& whole) {
  const layout::Placement placement = layout::placement_of(cut.placements, name).or_throw();
  return parallel::tensor::part_of(whole, placement, cut.index, cut.degree);
}

struct Trained {
  std::map<std::string, at::Tensor> values;
  std::vector<double> losses;
};

/// Gradients as a strategy gives them: written to slots where the model can.
Trained train(GptImpl& model, const std::vector<layers::LayerScope>& scopes = {}) {
  std::vector<at::Tensor> slots;
  for (const auto& one : model.parameters()) slots.push_back(at::zeros_like(one.detach()));
  model.set_gradient_slots(slots);
  Trained trained;
  for (int64_t step = 0; step < kSteps; ++step) {
    const layers::Batch batch = batch_of(model.options(), step);
    const at::Tensor loss = model.loss_sum(batch, scopes).sum;
    trained.losses.push_back(loss.item<double>());
    (loss / batch.num_valid).backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor& one : model.parameters()) {
      one.sub_(one.grad(), kRate);
      one.mutable_grad() = at::Tensor();
    }
  }
  for (const auto& item : model.named_parameters()) trained.values[item.key()] = item.value();
  return trained;
}

void expect_the_wholes_values(const GptOptions& options, int degree, bool recompute = false) {
  GptOptions plain = options;
  plain.sequence = plain.moves_weights = false;
  GptImpl whole(plain);
  const Trained expected = train(whole);
  test::run_ranks(degree, [&](world::World& world) {
    GptOptions own = options;
    own.axis = Axis(world.group());
    GptImpl model(own);
    std::vector<layers::LayerScope> scopes;
    if (recompute) scopes.push_back(parallel::recompute(model.recomputed_layers()));
    const Trained found = train(model, scopes);
    const layout::Cut cut = model.cut();
    EXPECT_EQ(cut.index, world.rank());
    for (const auto& [name, value] : found.values) {
      const at::Tensor part = part_of(cut, name, expected.values.at(name));
      ASSERT_EQ(value.sizes(), part.sizes()) << name << ", rank " << world.rank();
      EXPECT_LE((value - part).abs().max().item<double>(),
                kApart * expected.values.at(name).abs().max().item<double>())
          << name << ", rank " << world.rank() << " of " << degree;
    }
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(found.losses[step], expected.losses[step], kApart * expected.losses[step]);
    }
  });
}

TEST(CutGpt, TrainsAsTheWholeOneWhateverTheDegree) {
  for (const int degree : {2, 4, 6}) expect_the_wholes_values(uneven(), degree);
}

TEST(CutGpt, TrainsAsTheWholeOneWithAHeadOfItsOwnAndDropout) {
  GptOptions options = uneven();
  options.tied = false;
  options.dropout = 0.1;
  expect_the_wholes_values(options, 4);
}

TEST(CutGpt, TrainsAsTheWholeOneWithHeadsThatShareKeysAndValues) {
  GptOptions options = uneven();
  options.kv_heads = 3;
  options.dropout = 0.1;
  for (const bool sequence : {false, true}) {
    options.sequence = sequence;
    for (const int degree : {2, 3}) expect_the_wholes_values(options, degree);
  }
}

TEST(CutGpt, TrainsAsTheWholeOneWithItsStreamCutByTokens) {
  GptOptions options = uneven();
  options.sequence = true;  // of 10 tokens 2, 3, 2 and 3
  for (const int degree : {1, 2, 4}) expect_the_wholes_values(options, degree);
  options.dropout = 0.1;
  expect_the_wholes_values(options, 3, /*recompute=*/true);
}

TEST(CutGpt, TrainsAsTheWholeOneWhereWeightsOfMlpsMove) {
  GptOptions options = uneven();
  options.moves_weights = true;  // for 30 rows, of 4 ranks 7, 8, 7 and 8
  for (const int degree : {1, 2, 4}) expect_the_wholes_values(options, degree);
  options.sequence = true;
  options.dropout = 0.1;
  expect_the_wholes_values(options, 3);
  expect_the_wholes_values(options, 2, /*recompute=*/true);
}

/// In fp32, where another order of sums would be seen.
void expect_the_bits_of_one_process(GptOptions options, int blocks, bool recompute = false) {
  options.dtype = base::Precision::kFloat32;
  options.dropout = 0.1;
  options.axis = Axis().in_blocks(blocks);
  GptImpl whole(options);
  const Trained expected = train(whole);
  for (const int degree : {2, 3, 4}) {
    test::run_ranks(degree, [&](world::World& world) {
      GptOptions own = options;
      own.axis = Axis(world.group()).in_blocks(blocks);
      GptImpl model(own);
      std::vector<layers::LayerScope> scopes;
      if (recompute) scopes.push_back(parallel::recompute(model.recomputed_layers()));
      const Trained found = train(model, scopes);
      for (const auto& [name, value] : found.values) {
        EXPECT_TRUE(at::equal(value, part_of(model.cut(), name, expected.values.at(name))))
            << name << ", rank " << world.rank() << " of " << degree;
      }
      EXPECT_EQ(found.losses, expected.losses) << degree << " ranks";
    });
  }
}

TEST(CutGpt, HasTheBitsOfOneProcessInBlocks) { expect_the_bits_of_one_process(uneven(), 4); }

TEST(CutGpt, HasTheBitsOfOneProcessInBlocksWithAHeadOfItsOwn) {
  GptOptions options = uneven();
  options.heads = 4;
  options.tied = false;
  expect_the_bits_of_one_process(options, 4, /*recompute=*/true);
}

TEST(CutGpt, HasTheBitsOfOneProcessInBlocksOfHeadsThatShareKeysAndValues) {
  GptOptions options = uneven();
  options.heads = 8;
  options.kv_heads = 4;
  expect_the_bits_of_one_process(options, 4);
}

/// A block's columns begin anywhere among 16 bytes.
TEST(CutGpt, HasTheBitsOfOneProcessInBlocksOfOddSizes) {
  for (const int64_t width : {20, 36, 60}) {
    GptOptions options = uneven();
    options.dtype = base::Precision::kFloat32;
    options.heads = 4;
    options.width = width;
    expect_the_bits_of_one_process(options, 4);
  }
}

TEST(CutGpt, ContinuesAPromptAsTheWholeOneDoes) {
  GptOptions options = uneven();
  options.axis = Axis().in_blocks(4);
  const GenerateOptions generated{
      .num_tokens = 20, .block = options.block, .vocabulary = options.vocabulary};
  const std::vector<int64_t> prompt{7};  // of fewer tokens than ranks
  GptImpl whole(options);
  const std::vector<int64_t> expected = generate(whole, prompt, generated);
  for (const bool in_blocks : {true, false}) {
    test::run_ranks(3, [&](world::World& world) {
      GptOptions own = options;
      own.axis = Axis(world.group()).in_blocks(in_blocks ? 4 : 1);
      own.sequence = true;
      own.moves_weights = !in_blocks;
      GptImpl model(own);
      EXPECT_EQ(generate(model, prompt, generated), expected) << "rank " << world.rank();
    });
  }
}

TEST(CutGpt, RefusesMoreBlocksThanHeads) {
  GptOptions options = uneven();
  options.axis = Axis().in_blocks(8);
  EXPECT_THROW({ const GptImpl model(options); }, Error);
}

TEST(CutGpt, RunsItsCollectivesAgainWhereBlocksAreRecomputed) {
  expect_the_wholes_values(uneven(), 2, /*recompute=*/true);
}

TEST(CutGpt, BeginsWithPartsOfTheWholesValues) {
  GptOptions options = uneven();
  const auto whole = GptImpl(options).named_parameters();
  for (int rank = 0; rank < 4; ++rank) {
    options.axis = Axis::silent(rank, 4, [](const AxisCall&) {});
    const GptImpl part(options);
    for (const auto& item : part.named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), part_of(part.cut(), item.key(), whole[item.key()])))
          << item.key();
    }
  }
}

TEST(CutGpt, MovesTwoSumsOfTheStreamPerBlockForwardAndTwoBackward) {
  GptOptions options = uneven();
  std::vector<int64_t> counts;
  options.axis =
      Axis::silent(0, 2, [&](const AxisCall& call) { counts.push_back(call.counts[0]); });
  GptImpl model(options);
  const layers::Batch batch = batch_of(options, 0);
  model.loss_sum(batch).sum.backward();
  const int64_t tokens = batch.inputs.numel(), stream = tokens * options.width;
  // Embedding; out and down of two blocks; the loss's maxima and sums; head, up and qkv of two blocks.
  EXPECT_THAT(counts, testing::ElementsAre(stream, stream, stream, stream, stream, tokens,
                                           2 * tokens, stream, stream, stream, stream, stream));
}

TEST(CutGpt, SumsTheNormsAndBiasesOfABlockInOneCallWhereTokensAreCut) {
  GptOptions options = uneven();
  options.sequence = true;
  std::vector<int64_t> sums;
  options.axis = Axis::silent(0, 2, [&](const AxisCall& call) {
    const bool is_sum = call.routine == schedule::Routine::kAllReduce;
    if (is_sum && call.counts[0] % options.width == 0) sums.push_back(call.counts[0]);
  });
  GptImpl model(options);
  model.loss_sum(batch_of(options, 0)).sum.backward();
  EXPECT_THAT(sums, testing::ElementsAre(2 * options.width, 6 * options.width, 6 * options.width));
}

TEST(CutGpt, MovesWeightsOfAnMlpTwiceAndTheirGradientsOnce) {
  using schedule::Routine;
  for (const bool sequence : {false, true}) {
    GptOptions options = uneven();
    options.layers = 1;
    options.moves_weights = true;
    options.sequence = sequence;
    std::map<Routine, std::vector<int64_t>> counts;
    options.axis = Axis::silent(
        0, 2, [&](const AxisCall& call) { counts[call.routine].push_back(call.counts[0]); });
    GptImpl model(options);
    const layers::Batch batch = batch_of(options, 0);
    model.loss_sum(batch).sum.backward();
    const int64_t half = batch.inputs.numel() / 2 * options.width, hidden = 2 * options.width;
    const int64_t weight = hidden * options.width;
    const auto of_mlp = [&](Routine routine, std::vector<int64_t> more) {
      for (const int64_t count : {weight, weight, hidden}) more.push_back(count);
      if (routine == Routine::kAllGather) more.insert(more.end(), {weight, weight});
      auto& all = counts[routine];
      for (const int64_t count : more) {
        const auto found = std::ranges::find(all, count);
        EXPECT_NE(found, all.end()) << name_of(routine) << " of " << count;
        if (found != all.end()) all.erase(found);
      }
      if (sequence) return;
      EXPECT_THAT(all, testing::IsEmpty()) << name_of(routine);
    };
    of_mlp(Routine::kReduceScatter, {});
    of_mlp(Routine::kAllGather, sequence ? std::vector<int64_t>{} : std::vector{half, half});
  }
}

TEST(CutGpt, IsRefusedWhereHeadsOfKeysDoNotGoRound) {
  for (const int64_t kv_heads : {6, 3}) {
    GptOptions options = uneven();
    options.kv_heads = kv_heads;
    options.axis = Axis::silent(0, static_cast<int>(kv_heads) + 1, [](const AxisCall&) {});
    try {
      const GptImpl model(options);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("at most " + std::to_string(kv_heads) + " ranks can"));
    }
  }
}

}  // namespace
}  // namespace hanji::models
