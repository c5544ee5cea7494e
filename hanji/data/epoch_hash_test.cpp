#include "hanji/data/epoch_hash.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <set>
#include <thread>
#include <tuple>

#include "hanji/data/beton_file.h"
#include "hanji/data/beton_generated.h"
#include "hanji/data/beton_images.h"
#include "hanji/data/make_beton.h"
#include "hanji/data/source.h"

namespace hanji::data {
namespace {

using testing::HasSubstr;

/// Sample i of epoch e is (e, i), its target i.
class HashedNumbers : public Source {
 public:
  int64_t count(Part part) const override { return part == Part::kTrain ? 50 : 0; }
  SampleShape shape() const override { return {.inputs = {2}, .targets = {}}; }
  Status read(Part, int64_t index, layers::Batch& batch, int64_t row) const override {
    return read_in_epoch(-1, index, batch, row);
  }
  Status read_in_epoch(int64_t epoch, int64_t index, layers::Batch& batch,
                       int64_t row) const override {
    auto* inputs = batch.inputs.mutable_data_ptr<int64_t>() + 2 * row;
    inputs[0] = epoch;
    inputs[1] = index + change(index);
    batch.targets.mutable_data_ptr<int64_t>()[row] = index;
    return index == fails_at ? base::corrupt("sample 7 is damaged") : Status();
  }
  uint64_t checksum() const override { return 0; }

  virtual int64_t change(int64_t /*index*/) const { return 0; }
  int64_t fails_at = -1;
};

/// Sample 31 has one bit too many.
class OneBit final : public HashedNumbers {
  int64_t change(int64_t index) const override { return index == 31 ? 64 : 0; }
};

/// Sample 31 is another one where a second thread reads.
class OtherOnThreads final : public HashedNumbers {
 public:
  int64_t change(int64_t index) const override {
    return index == 31 && std::this_thread::get_id() != first_ ? 1 : 0;
  }

 private:
  std::thread::id first_ = std::this_thread::get_id();
};

EpochHashOptions options_of(ReadingWay way, plan::EpochEnd end = plan::EpochEnd::kContinue) {
  return {.loader = {.seed = 4,
                     .num_samples = 50,
                     .global_batch = 12,
                     .share = {},
                     .micro_batch = 5,
                     .epoch_end = end},
          .way = way,
          .epochs = 3};
}

ReadingHashes hash(const Source& source, const EpochHashOptions& options) {
  return hash_epochs(source, options).or_throw();
}

TEST(EpochHash, IsTheSameForAnyRanksWorkersAndPrefetch) {
  for (const auto& [end, steps, samples] : std::vector<std::tuple<plan::EpochEnd, size_t, int64_t>>{
           {plan::EpochEnd::kContinue, 13, 150},
           {plan::EpochEnd::kPad, 15, 180},
           {plan::EpochEnd::kDrop, 12, 144}}) {
    const ReadingHashes one = hash(HashedNumbers(), options_of({}, end));
    EXPECT_EQ(one.steps.size(), steps);
    EXPECT_EQ(one.num_samples, samples);
    EXPECT_EQ(std::set(one.epochs.begin(), one.epochs.end()).size(), 3U)
        << "each epoch has its own";
    for (const ReadingWay way :
         {ReadingWay{2, 0, 1}, {3, 1, 1}, {5, 2, 0}, {7, 1, 4}, {12, 1, 2}, {1, 3, 8}}) {
      const ReadingHashes found = hash(HashedNumbers(), options_of(way, end));
      EXPECT_EQ(found.epochs, one.epochs) << to_text(way);
      EXPECT_EQ(first_difference(one, found), -1) << to_text(way);
    }
  }
}

TEST(EpochHash, MicroBatchesDoNotChangeIt) {
  EpochHashOptions whole = options_of({.ranks = 2});
  whole.loader.micro_batch = 0;
  EXPECT_EQ(hash(HashedNumbers(), whole).epochs, hash(HashedNumbers(), options_of({})).epochs);
}

TEST(EpochHash, OneBitOfOneSampleChangesEveryEpoch) {
  const ReadingHashes good = hash(HashedNumbers(), options_of({}));
  const ReadingHashes bad = hash(OneBit(), options_of({}));
  for (size_t epoch = 0; epoch < 3; ++epoch) EXPECT_NE(good.epochs[epoch], bad.epochs[epoch]);
  const Loader loader = Loader::create(options_of({}).loader).or_throw();
  int64_t step = 0;
  for (bool is_read = false; !is_read; step += is_read ? 0 : 1) {
    for (const EpochSample one : loader.at(step, {0, 12})) is_read = is_read || one.index == 31;
  }
  EXPECT_EQ(first_difference(good, bad), step);
}

TEST(EpochHash, TheSameSamplesInAnotherOrderAreOthers) {
  EpochHashOptions other = options_of({});
  other.loader.seed = 5;
  const ReadingHashes good = hash(HashedNumbers(), options_of({})),
                      bad = hash(HashedNumbers(), other);
  for (size_t epoch = 0; epoch < 3; ++epoch) EXPECT_NE(good.epochs[epoch], bad.epochs[epoch]);
  other = options_of({});
  other.loader.order = plan::SampleOrder::kSequential;
  EXPECT_EQ(first_difference(good, hash(HashedNumbers(), other)), 0);
}

TEST(EpochHash, ASampleThatDependsOnItsReaderIsFound) {
  const OtherOnThreads source;
  const ReadingHashes alone = hash(source, options_of({}));
  EXPECT_EQ(alone.epochs, hash(source, options_of({.ranks = 3})).epochs);
  bool is_found = false;  // the caller's thread reads too, and may be first
  for (int round = 0; round < 200 && !is_found; ++round) {
    is_found = first_difference(alone, hash(source, options_of({1, 3, 4}))) >= 0;
  }
  EXPECT_TRUE(is_found);
}

TEST(EpochHash, SaysWhatCannotBeRead) {
  HashedNumbers source;
  source.fails_at = 7;
  const Status damaged = hash_epochs(source, options_of({2, 1, 1})).status();
  EXPECT_EQ(damaged.code(), Code::kCorrupt);
  EXPECT_THAT(damaged.message(), HasSubstr("sample 7 is damaged"));
  const Status many = hash_epochs(HashedNumbers(), options_of({.ranks = 13})).status();
  EXPECT_EQ(many.code(), Code::kInvalidArgument);
  EXPECT_THAT(many.message(), HasSubstr("13 ranks for a global batch of 12 samples"));
}

TEST(EpochHash, EndsEarlyWhenToldTo) {
  EpochHashOptions options = options_of({2, 1, 1});
  int64_t calls = 0;
  options.proceed = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 13);
    EXPECT_EQ(done, ++calls);
    return done < 4;
  };
  EXPECT_EQ(hash_epochs(HashedNumbers(), options).status().code(), Code::kCancelled);
  EXPECT_EQ(calls, 4);
}

/// 40 images, which are cropped, mirrored and mixed with their neighbours, some of them on another rank.
TEST(EpochHash, ImagesThatAreAugmentedAndMixedAreTheSameBytes) {
  const auto path = std::filesystem::path(testing::TempDir()) / "epoch_hash.beton";
  std::filesystem::remove(path);
  const auto recipe = generated_recipe({.count = 40, .size = 24, .classes = 4}).or_throw();
  ASSERT_TRUE(make_beton(recipe, path, {}).or_throw().is_whole);
  auto opened = BetonImages::create(
      BetonFile::open(path).or_throw(),
      {.stages = plan::parse_image_stages("random_resized_crop, flip, normalise, mixup").or_throw(),
       .size = 16,
       .validation_fraction = 0});
  const BetonImages images = std::move(opened).or_throw();
  const EpochHashOptions options{
      .loader = {.seed = 2, .num_samples = 40, .global_batch = 10, .share = {}, .micro_batch = 4},
      .way = {},
      .epochs = 2};
  const ReadingHashes one = hash(images, options);
  EXPECT_NE(one.epochs[0], one.epochs[1]);
  for (const ReadingWay way : {ReadingWay{2, 0, 1}, {3, 1, 2}, {10, 1, 0}}) {
    EpochHashOptions other = options;
    other.way = way;
    EXPECT_EQ(hash(images, other).epochs, one.epochs) << to_text(way);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace hanji::data
