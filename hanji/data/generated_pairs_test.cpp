#include "hanji/data/generated_pairs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "hanji/data/batch.h"
#include "hanji/data/internal/chain_distances.h"

namespace hanji::data {
namespace {

using plan::Pairs;

GeneratedPairs pairs(PairOptions options = {}) {
  return GeneratedPairs::create(options).or_throw();
}

layers::Batch read(const GeneratedPairs& source, int64_t index, Part part = Part::kTrain) {
  layers::Batch batch;
  shape_batch(source.shape(), {0, 1}, batch);
  throw_if_error(source.read(part, index, batch, 0));
  return batch;
}

TEST(GeneratedPairs, ASampleDependsOnSeedAndNumberAlone) {
  for (const Pairs task : {Pairs::kContacts, Pairs::kPaths, Pairs::kDistances}) {
    const GeneratedPairs source = pairs({.seed = 3, .task = task});
    const layers::Batch one = read(source, 17);
    read(source, 4);
    EXPECT_TRUE(at::equal(read(source, 17).inputs, one.inputs));
    const layers::Batch fewer = read(pairs({.seed = 3, .task = task, .count = 100}), 17);
    EXPECT_TRUE(at::equal(fewer.inputs, one.inputs));
    EXPECT_TRUE(at::equal(fewer.targets, one.targets));
    EXPECT_FALSE(at::equal(read(pairs({.seed = 4, .task = task}), 17).targets, one.targets));
    EXPECT_FALSE(at::equal(read(source, 18).targets, one.targets));
  }
}

TEST(GeneratedPairs, TheValidationPartGoesOnCounting) {
  const GeneratedPairs source = pairs({.count = 100, .validation_fraction = 0.2});
  EXPECT_EQ(source.num_train(), 80);
  EXPECT_EQ(source.num_validation(), 20);
  EXPECT_TRUE(at::equal(read(source, 3, Part::kValidation).inputs, read(pairs(), 83).inputs));
}

TEST(GeneratedPairs, ShapesAndClassesAreThoseOfTheTask) {
  const layers::Batch contacts = read(pairs({.residues = 9, .sequences = 5}), 0);
  EXPECT_EQ(contacts.inputs.sizes(), (std::vector<int64_t>{1, 5, 9}));
  EXPECT_EQ(contacts.targets.sizes(), (std::vector<int64_t>{1, 9, 9}));
  EXPECT_TRUE(at::equal(contacts.targets, contacts.targets.transpose(1, 2)));
  EXPECT_LE(contacts.targets.max().item<int64_t>(), 1);
  EXPECT_LT(contacts.inputs.max().item<int64_t>(), 4);
  const layers::Batch paths = read(pairs({.task = Pairs::kPaths, .residues = 9}), 0);
  EXPECT_EQ(paths.inputs.sizes(), (std::vector<int64_t>{1, 9, 9}));
  EXPECT_TRUE(at::equal(paths.inputs, paths.inputs.transpose(1, 2)));
}

/// Bellman's equation, which only shortest paths fulfil where every edge is at least 1 long.
TEST(GeneratedPairs, PathsAreTheShortest) {
  for (int64_t sample = 0; sample < 20; ++sample) {
    const layers::Batch batch = read(pairs({.task = Pairs::kPaths, .residues = 16}), sample);
    const at::Tensor edges = batch.inputs[0], paths = batch.targets[0];
    const at::Tensor open = at::where(edges.eq(0), at::full_like(edges, 100), edges);
    const at::Tensor by_last_edge =
        std::get<0>((paths.unsqueeze(2) + open.unsqueeze(0)).min(1)).clamp_max(15);
    const at::Tensor self = at::eye(16, at::kBool);
    EXPECT_TRUE(at::equal(paths, by_last_edge.masked_fill(self, 0))) << sample;
    EXPECT_LT(paths.max().item<int64_t>(), 16);
  }
}

TEST(GeneratedPairs, DistancesAreOfPointsInSpaceAndKnownOnesAreTrue) {
  double known_share = 0;
  for (int64_t sample = 0; sample < 20; ++sample) {
    const layers::Batch batch = read(pairs({.task = Pairs::kDistances, .residues = 16}), sample);
    const at::Tensor known = batch.inputs[0], classes = batch.targets[0];
    EXPECT_TRUE(at::equal(classes, classes.t()));
    EXPECT_TRUE(at::equal(known, at::where(known.gt(0), classes + 1, at::zeros_like(known))));
    EXPECT_TRUE(known.diagonal().eq(1).all().item<bool>());
    EXPECT_TRUE(known.diagonal(1).eq(2).all().item<bool>()) << "3.8 of bins of 3";
    // A distance lies above its class, in bins, and below the next one, and no way round is shorter.
    const at::Tensor round = std::get<0>((classes.unsqueeze(2) + classes.unsqueeze(0) + 2).min(1));
    EXPECT_TRUE(classes.lt(round).logical_or(classes.ge(14)).all().item<bool>()) << sample;
    known_share += known.triu(2).gt(0).sum().item<double>() / (20 * 15 * 14 / 2);
  }
  EXPECT_NEAR(known_share, 0.25,
              0.05);  // 2100 draws: five of their deviations, sqrt(3 / 16 / 2100)
}

/// Of a distance between the others' sum, 4.5 + 13.5, and their difference.
TEST(GeneratedPairs, TheMiddleOfTheTriangleBoundsIsThatOfSumAndDifference) {
  const std::vector<int64_t> known = {1, 2, 0, 2, 1, 5, 0, 5, 1};
  EXPECT_EQ(internal::classes_between_bounds(3, known),
            (std::vector<int64_t>{0, 1, 4, 1, 0, 4, 4, 4, 0}));
}

/// Of contacts the states of two residues depend on each other; of other pairs they hardly do.
TEST(GeneratedPairs, SequencesShowTheirContacts) {
  double of_contacts = 0, of_others = 0, num_contacts = 0, num_others = 0;
  const GeneratedPairs source = pairs({.residues = 12, .sequences = 512});
  for (int64_t sample = 0; sample < 10; ++sample) {
    const layers::Batch batch = read(source, sample);
    const at::Tensor states = batch.inputs[0].unsqueeze(-1).eq(at::arange(4)).to(at::kDouble) - 0;
    const at::Tensor centred = states - states.mean(0, true);
    const at::Tensor covariance =
        at::einsum("sia,sjb->ijab", {centred, centred}).div(512).pow(2).sum({2, 3});
    const at::Tensor contact = batch.targets[0].to(at::kDouble);
    const at::Tensor other = 1 - contact - at::eye(12, at::kDouble);
    of_contacts += (covariance * contact).sum().item<double>();
    of_others += (covariance * other).sum().item<double>();
    num_contacts += contact.sum().item<double>();
    num_others += other.sum().item<double>();
  }
  EXPECT_GT(of_contacts / num_contacts, 5 * of_others / num_others);
}

TEST(GeneratedPairs, TheFiguresToBeatAreNeitherChanceNorPerfect) {
  const auto contacts = pairs().baseline();
  ASSERT_TRUE(contacts);
  EXPECT_EQ(contacts->name, "covariance with APC");
  EXPECT_GT(contacts->value, 0.5) << "of 276 pairs about 20 are in contact";
  EXPECT_LT(contacts->value, 0.9);
  const auto paths = pairs({.task = Pairs::kPaths}).baseline();
  EXPECT_GT(paths->value, 0.2);
  EXPECT_LT(paths->value, 0.6);
  const auto distances = pairs({.task = Pairs::kDistances}).baseline();
  EXPECT_GT(distances->value, 0.6) << "a third of the pairs is known";
  EXPECT_LT(distances->value, 0.75);
}

TEST(GeneratedPairs, RefusesWhatCannotBe) {
  for (const PairOptions& bad :
       {PairOptions{.residues = 7}, PairOptions{.sequences = 1}, PairOptions{.count = 1},
        PairOptions{.task = Pairs::kNone}, PairOptions{.validation_fraction = 1}}) {
    EXPECT_EQ(GeneratedPairs::create(bad).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace hanji::data
