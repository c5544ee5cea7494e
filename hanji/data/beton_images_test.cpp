#include "hanji/data/beton_images.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <mutex>
#include <set>

#include "hanji/base/clock.h"
#include "hanji/data/batch.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/internal/test_images.h"
#include "hanji/data/prefetcher.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct WrittenImage {
  std::string bytes;
  BetonImageMode mode = BetonImageMode::kJpeg;
  int64_t label = 0;
  uint16_t width = 100;
  uint16_t height = 80;
};

fs::path write_images(const fs::path& path, const std::vector<WrittenImage>& images) {
  auto writer =
      BetonWriter::create(path, {{"label", BetonType::kInt}, {"photo", BetonType::kRgbImage}},
                          {.num_samples = images.size(), .page_bytes = uint64_t{2} << 20})
          .or_throw();
  for (const WrittenImage& one : images) {
    const BetonValue values[] = {{.integer = one.label},
                                 {.mode = one.mode,
                                  .width = one.width,
                                  .height = one.height,
                                  .bytes = internal::bytes_of(one.bytes)}};
    base::throw_if_error(writer.append(values));
  }
  base::throw_if_error(writer.finish());
  return path;
}

/// Raw images of one pixel whose colour is their number, of class number / 10.
std::vector<WrittenImage> numbered(int count) {
  std::vector<WrittenImage> images;
  for (int i = 0; i < count; ++i) {
    images.push_back({.bytes = std::string(3, static_cast<char>(i)),
                      .mode = BetonImageMode::kRaw,
                      .label = i / 10,
                      .width = 1,
                      .height = 1});
  }
  return images;
}

BetonImagesOptions plain_options(double validation_fraction = 0) {
  BetonImagesOptions options{.size = 1, .validation_fraction = validation_fraction};
  options.stages.deviation = {1 / 255.0, 1 / 255.0, 1 / 255.0};
  return options;
}

BetonImages open_labelled(const fs::path& path, const BetonImagesOptions& options) {
  return BetonImages::create(BetonFile::open(path).or_throw(), options).or_throw();
}

struct ReadSample {
  at::Tensor image;
  int64_t label = 0;
};

Result<ReadSample> read_one(const BetonImages& images, int64_t index, int64_t epoch = -1,
                            Part part = Part::kTrain) {
  layers::Batch batch;
  shape_batch(images.shape(), {0, 1}, batch);
  HANJI_RETURN_IF_ERROR(epoch < 0 ? images.read(part, index, batch, 0)
                                  : images.read_in_epoch(epoch, index, batch, 0));
  return ReadSample{batch.inputs[0].clone(), batch.targets.item<int64_t>()};
}

class BetonImagesTest : public testing::Test {
 protected:
  fs::path path() const { return folder_.path() / "x.beton"; }
  const test::TemporaryFolder folder_;
};

TEST_F(BetonImagesTest, ReadsImagesAndLabelsInAnyOrderOfFields) {
  const BetonImages images = open_labelled(write_images(path(), numbered(25)), plain_options());
  EXPECT_EQ(images.num_train(), 25);
  EXPECT_EQ(images.num_classes(), 3);
  for (int64_t i = 0; i < 25; ++i) {
    const ReadSample one = read_one(images, i).or_throw();
    EXPECT_EQ(one.image[0].item<float>(), static_cast<float>(i));
    EXPECT_EQ(one.label, i / 10);
  }
}

TEST_F(BetonImagesTest, PartsShareOutTheFileAndEveryClassIsInBoth) {
  write_images(path(), numbered(100));
  for (const double fraction : {0.1, 0.2, 0.33, 0.5, 0.9}) {
    const BetonImages images = open_labelled(path(), plain_options(fraction));
    std::multiset<int64_t> seen;
    std::set<int64_t> classes;
    int64_t before = -1;
    for (int64_t i = 0; i < images.num_train(); ++i) {
      const int64_t sample = images.sample_of(Part::kTrain, i);
      EXPECT_GT(sample, before) << "the order of the file";
      before = sample;
      seen.insert(sample);
    }
    for (int64_t i = 0; i < images.num_validation(); ++i) {
      seen.insert(images.sample_of(Part::kValidation, i));
      classes.insert(read_one(images, i, -1, Part::kValidation).or_throw().label);
    }
    EXPECT_EQ(seen.size(), 100U) << fraction;
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 100U) << fraction;
    EXPECT_EQ(classes.size(), 10U) << fraction;
  }
}

TEST_F(BetonImagesTest, AnEpochIsAnotherViewAndTheSameWheneverItIsRead) {
  const WrittenImage photo{.bytes = internal::encode_jpeg({})};
  write_images(path(), {photo, photo});
  BetonImagesOptions options{.size = 24, .validation_fraction = 0};
  options.stages = plan::parse_image_stages(plan::kUsualImageStages).or_throw();
  const BetonImages images = open_labelled(path(), options);
  const at::Tensor first = read_one(images, 0, 0).or_throw().image;
  EXPECT_FALSE(at::equal(read_one(images, 0, 1).or_throw().image, first)) << "another epoch";
  EXPECT_FALSE(at::equal(read_one(images, 1, 0).or_throw().image, first)) << "another sample";
  EXPECT_TRUE(at::equal(read_one(open_labelled(path(), options), 0, 0).or_throw().image, first));
  options.seed = 2;
  EXPECT_FALSE(at::equal(read_one(open_labelled(path(), options), 0, 0).or_throw().image, first));
  EXPECT_TRUE(at::equal(read_one(images, 0).or_throw().image, read_one(images, 1).or_throw().image))
      << "without augmentation";
}

TEST_F(BetonImagesTest, TellsHowLongThreadsWaitedForBytes) {
  const BetonImages images = open_labelled(write_images(path(), numbered(25)), plain_options());
  double before = images.fetching_seconds().value();
  EXPECT_EQ(before, 0);
  for (int64_t i = 0; i < 25; ++i) {
    const int64_t begun = base::now_ns();
    ASSERT_TRUE(read_one(images, i, 0).ok());
    const double passed = static_cast<double>(base::now_ns() - begun) * 1e-9;
    const double now = images.fetching_seconds().value();
    EXPECT_GT(now, before);
    EXPECT_LE(now - before, passed);
    before = now;
  }
}

TEST_F(BetonImagesTest, AnErrorNamesTheSample) {
  const std::string stream = internal::encode_jpeg({});
  std::string of_12_bits = stream;
  of_12_bits[stream.find("\xFF\xC0") + 4] = 12;
  write_images(path(),
               {{.bytes = stream}, {.bytes = stream.substr(0, 400)}, {.bytes = of_12_bits}});
  const BetonImages images = open_labelled(path(), plain_options());
  EXPECT_TRUE(read_one(images, 0).ok());
  EXPECT_EQ(read_one(images, 1).status().code(), Code::kCorrupt);
  EXPECT_THAT(read_one(images, 1).status().message(), HasSubstr("sample 1: the JPEG: "));
  EXPECT_EQ(read_one(images, 2).status().code(), Code::kUnsupported);
  EXPECT_THAT(read_one(images, 2).status().message(),
              HasSubstr("sample 2: the JPEG: Unsupported JPEG data precision 12"));
}

TEST_F(BetonImagesTest, SkipTakesTheNextSampleOfThePartAndReports) {
  const std::string stream = internal::encode_jpeg({});
  const WrittenImage bad{.bytes = stream.substr(0, 400)};
  write_images(path(), {bad, {.bytes = stream, .label = 1}, {.bytes = stream, .label = 2}, bad});
  BetonImagesOptions options = plain_options();
  options.corrupt = plan::CorruptPolicy::kSkip;
  std::vector<std::string> reports;
  options.report_skipped = [&](const Status& status) { reports.push_back(status.message()); };
  const BetonImages images = open_labelled(path(), options);
  EXPECT_EQ(read_one(images, 0).or_throw().label, 1);
  EXPECT_EQ(read_one(images, 3, 0).or_throw().label, 1) << "from the end to the begin";
  ASSERT_EQ(reports.size(), 3U);
  EXPECT_THAT(reports[0], HasSubstr("sample 0"));
  EXPECT_THAT(reports[1], HasSubstr("sample 3"));
  EXPECT_THAT(reports[2], HasSubstr("sample 0"));
}

TEST_F(BetonImagesTest, AFileOfDamageAloneIsAnErrorUnderSkipToo) {
  write_images(path(), {{.bytes = "no JPEG"}, {.bytes = "none either"}});
  BetonImagesOptions options = plain_options();
  options.corrupt = plan::CorruptPolicy::kSkip;
  EXPECT_THAT(read_one(open_labelled(path(), options), 1).status().message(),
              HasSubstr("sample 1"));
}

TEST_F(BetonImagesTest, OtherLabelsPixelsAndStagesHaveAnotherChecksum) {
  const std::string stream = internal::encode_jpeg({});
  const auto checksum_of = [&](const std::vector<WrittenImage>& images, int64_t size) {
    BetonImagesOptions options = plain_options();
    options.size = size;
    fs::remove(path());
    return open_labelled(write_images(path(), images), options).checksum();
  };
  const uint64_t one = checksum_of({{.bytes = stream}}, 8);
  EXPECT_EQ(checksum_of({{.bytes = stream}}, 8), one);
  EXPECT_NE(checksum_of({{.bytes = stream, .label = 1}}, 8), one);
  EXPECT_NE(checksum_of({{.bytes = stream + " "}}, 8), one);
  EXPECT_NE(checksum_of({{.bytes = stream}}, 9), one);
  std::string other = stream;
  other[other.size() / 2] ^= 1;
  EXPECT_NE(checksum_of({{.bytes = other}}, 8), one) << "as long, of the same class and place";
}

BetonImages open_mixed(const fs::path& path, std::string_view stages) {
  BetonImagesOptions options{.size = 16, .validation_fraction = 0};
  options.stages = plan::parse_image_stages(stages).or_throw();
  return open_labelled(path, options);
}

std::vector<WrittenImage> photos(int count) {
  std::vector<WrittenImage> images;
  for (int i = 0; i < count; ++i) {
    images.push_back({.bytes = internal::encode_jpeg({.width = 40 + i, .height = 30}),
                      .label = i % 3,
                      .width = static_cast<uint16_t>(40 + i),
                      .height = 30});
  }
  return images;
}

TEST_F(BetonImagesTest, MixedBatchesAreTheSameForAnyWorldMicroBatchesAndThreads) {
  write_images(path(), photos(11));
  const BetonImages images =
      open_mixed(path(),
                 "random_resized_crop, flip, contrast, mixup(probability = 0.5), "
                 "cutmix(probability = 0.5)");
  constexpr int64_t kBatch = 9, kSteps = 3;
  const auto loader_of = [&](layout::Range share, int64_t micro_batch) {
    return Loader::create({.seed = 2,
                           .num_samples = images.num_train(),
                           .global_batch = kBatch,
                           .share = share,
                           .micro_batch = micro_batch})
        .or_throw();
  };
  for (int64_t step = 0; step < kSteps; ++step) {
    layers::Batch whole;
    read_batch(images, loader_of({0, kBatch}, kBatch), step, {0, kBatch}, whole);
    EXPECT_EQ(whole.num_valid, kBatch);
    EXPECT_TRUE(at::allclose(whole.targets.sum(1), at::ones({kBatch})));
    EXPECT_EQ(whole.targets[kBatch - 1].max().item<float>(), 1) << "the odd one has no partner";
    EXPECT_LT(whole.targets.amax(1).min().item<float>(), 0.95) << "labels are mixed";
    for (int world = 1; world <= 5; ++world) {
      for (int rank = 0; rank < world; ++rank) {
        const layout::Range share{kBatch * rank / world, kBatch * (rank + 1) / world};
        const Loader loader = loader_of(share, 1 + world % 3);
        Prefetcher prefetcher(images, loader, world, kSteps);
        for (const layout::Range cut : loader.micro_batches()) {
          const layers::Batch& found = prefetcher.read(step, cut);
          EXPECT_TRUE(at::equal(found.inputs, whole.inputs.slice(0, cut.begin, cut.end)));
          EXPECT_TRUE(at::equal(found.targets, whole.targets.slice(0, cut.begin, cut.end)));
        }
      }
    }
  }
}

TEST_F(BetonImagesTest, AMixedPairHasPixelsAndLabelsOfBoth) {
  write_images(path(), photos(2));
  const BetonImages mixed = open_mixed(path(), "center_crop, mixup(alpha = 1)");
  const BetonImages plain = open_mixed(path(), "center_crop");
  const Loader loader = Loader::create({.num_samples = 2,
                                        .global_batch = 2,
                                        .share = {0, 2},
                                        .micro_batch = 2,
                                        .order = plan::SampleOrder::kSequential})
                            .or_throw();
  layers::Batch found, own;
  read_batch(mixed, loader, 0, {0, 2}, found);
  read_batch(plain, loader, 0, {0, 2}, own);
  for (int64_t row = 0; row < 2; ++row) {
    const at::Tensor weight = found.targets[row][row];
    const at::Tensor expected = weight * own.inputs[row] + (1 - weight) * own.inputs[1 - row];
    EXPECT_TRUE(at::equal(found.inputs[row], expected)) << row;
    EXPECT_EQ(found.targets[row][1 - row].item<float>(), 1 - weight.item<float>());
  }
}

TEST_F(BetonImagesTest, ValidationIsNotMixed) {
  write_images(path(), photos(4));
  BetonImagesOptions options{.size = 16, .validation_fraction = 0.5};
  options.stages = plan::parse_image_stages("center_crop, brightness, mixup").or_throw();
  const BetonImages images = open_labelled(path(), options);
  layers::Batch batch;
  read_validation_batch(images, 2, {0, 2}, batch);
  EXPECT_TRUE(at::equal(batch.targets.amax(1), at::ones({2})));
  EXPECT_EQ(batch.num_valid, 2);
  options.stages = plan::parse_image_stages("center_crop").or_throw();
  layers::Batch plain;
  read_validation_batch(open_labelled(path(), options), 2, {0, 2}, plain);
  EXPECT_TRUE(at::equal(batch.inputs, plain.inputs));
}

TEST_F(BetonImagesTest, AStageOfTheProgramChangesTrainingSamplesAndKnowsThem) {
  write_images(path(), numbered(6));
  BetonImagesOptions options = plain_options();
  options.change_tile = [](const ImageTile& tile) {
    EXPECT_EQ(tile.size, 1);
    EXPECT_EQ(tile.pixels[0], tile.sample);
    if (tile.sample == 4) throw std::runtime_error("worn out");
    tile.pixels[1] = 200;
  };
  const BetonImages images = open_labelled(path(), options);
  const ReadSample one = read_one(images, 3, 0).or_throw();
  EXPECT_EQ(one.image[0].item<float>(), 3);
  EXPECT_EQ(one.image[1].item<float>(), 200);
  EXPECT_EQ(read_one(images, 3).or_throw().image[1].item<float>(), 3) << "not in an epoch";
  const Loader loader = Loader::create({.num_samples = 6,
                                        .global_batch = 6,
                                        .share = {0, 6},
                                        .micro_batch = 6,
                                        .order = plan::SampleOrder::kSequential})
                            .or_throw();
  layers::Batch batch;
  EXPECT_THAT(
      [&] {
        read_batch(images, loader, 0, {0, 6}, batch);
      },
      testing::ThrowsMessage<Error>(HasSubstr("sample 4: std::runtime_error: worn out")));
}

TEST_F(BetonImagesTest, TheLastPartLeavesTheSampleAndThoseBeforeLeaveTheRow) {
  write_images(path(), photos(4));
  const std::string_view stages =
      "random_resized_crop, flip, saturation, translate, cutout, normalise";
  const BetonImages images =
      open_labelled(path(), {.stages = plan::parse_image_stages(stages).or_throw(), .size = 24});
  const std::vector<std::string> expected = {"read",      "decode",     "random_resized_crop",
                                             "flip",      "saturation", "normalise",
                                             "translate", "cutout"};
  ASSERT_EQ(images.parts(), expected);
  layers::Batch batch;
  shape_batch(images.shape(), {0, 1}, batch);
  batch.inputs.fill_(-7);
  for (size_t part = 0; part < 5; ++part) {
    ASSERT_TRUE(images.read_parts(part, {3, 1, &batch, 0}).ok());
    EXPECT_TRUE(batch.inputs.eq(-7).all().item<bool>()) << images.parts()[part];
  }
  for (size_t part = 5; part < 8; ++part) {
    ASSERT_TRUE(images.read_parts(part, {3, 1, &batch, 0}).ok());
    const bool is_whole = at::equal(batch.inputs[0], read_one(images, 1, 3).or_throw().image);
    EXPECT_EQ(is_whole, part == 7) << images.parts()[part];
  }
}

TEST_F(BetonImagesTest, StagesAreInTheChecksum) {
  write_images(path(), photos(3));
  std::set<uint64_t> found;
  for (const char* more : {"", ", vertical_flip", ", brightness", ", contrast", ", saturation",
                           ", hue", ", grayscale", ", mixup", ", cutmix", ", mixup(alpha = 1)"}) {
    found.insert(open_mixed(path(), std::string("center_crop") + more).checksum());
  }
  EXPECT_EQ(found.size(), 10U);
}

TEST_F(BetonImagesTest, PagesAreThoseThatTrainingSamplesAreStoredIn) {
  std::vector<WrittenImage> images;
  for (int i = 0; i < 9; ++i) {
    images.push_back({.bytes = std::string(3 * 512 * 512, 'x'),
                      .mode = BetonImageMode::kRaw,
                      .label = i,
                      .width = 512,
                      .height = 512});
  }
  write_images(path(), images);  // two in each page of 2 MiB
  const BetonImages all = open_labelled(path(), plain_options());
  EXPECT_THAT(all.train_pages(), testing::ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 4));
  const BetonImages part = open_labelled(path(), plain_options(0.3));
  std::vector<uint32_t> expected;
  for (int64_t i = 0; i < part.num_train(); ++i) {
    expected.push_back(static_cast<uint32_t>(part.sample_of(Part::kTrain, i) / 2));
  }
  EXPECT_EQ(part.train_pages(), expected);
}

TEST_F(BetonImagesTest, LabelsThatAreNoClassesAreRejectedByTheirSample) {
  for (const int64_t label : {int64_t{-1}, int64_t{1} << 20, INT64_MAX}) {
    std::vector<WrittenImage> images = numbered(3);
    images[1].label = label;
    fs::remove(path());
    write_images(path(), images);
    const Status status =
        BetonImages::create(BetonFile::open(path()).or_throw(), plain_options()).status();
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("sample 1 has the label {}", label)));
  }
}

TEST_F(BetonImagesTest, BalancedWeightsGiveEachClassTheSameShare) {
  std::vector<WrittenImage> images = numbered(25);  // 10, 10 and 5 of a class
  const BetonImages found = open_labelled(write_images(path(), images), plain_options());
  const std::vector<double> weights = found.weights("balanced").or_throw();
  for (size_t i = 0; i < 25; ++i) EXPECT_EQ(weights[i], i < 20 ? 0.1 : 0.2);
  EXPECT_EQ(found.weights("none").status().code(), Code::kNotFound);
  EXPECT_EQ(found.weights("photo").status().code(), Code::kInvalidArgument);
}

TEST_F(BetonImagesTest, WeightsAreReadFromAFloatField) {
  auto writer = BetonWriter::create(path(),
                                    {{"label", BetonType::kInt},
                                     {"photo", BetonType::kRgbImage},
                                     {"weight", BetonType::kFloat}},
                                    {.num_samples = 3, .page_bytes = uint64_t{2} << 20})
                    .or_throw();
  const std::string pixel(3, 'x');
  for (int i = 0; i < 3; ++i) {
    const BetonValue values[] = {{.integer = i},
                                 {.width = 1, .height = 1, .bytes = internal::bytes_of(pixel)},
                                 {.number = 0.5 * i}};
    base::throw_if_error(writer.append(values));
  }
  base::throw_if_error(writer.finish());
  EXPECT_THAT(open_labelled(path(), plain_options()).weights("weight").or_throw(),
              testing::ElementsAre(0, 0.5, 1));
}

TEST_F(BetonImagesTest, SamplesFromTheCacheAreThoseOfTheFileAndDamageIsNamed) {
  std::vector<WrittenImage> images;
  for (int i = 0; i < 24; ++i) {
    images.push_back({.bytes = std::string(3 * 400 * 400, static_cast<char>(i)),
                      .mode = BetonImageMode::kRaw,
                      .label = i,
                      .width = 400,
                      .height = 400});
  }
  write_images(path(), images);  // four in each page of 2 MiB
  const uint64_t damaged = BetonFile::open(path()).or_throw().sections().heap_begin + 3 * 480000;
  std::fstream(path(), std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(damaged))
      .put('x');
  BetonImagesOptions options = plain_options();
  const BetonImages file = open_labelled(path(), options);
  options.cached_pages = 6;
  auto opened = BetonImages::create(BetonFile::open(path()).or_throw(), options);
  if (!opened.ok()) GTEST_SKIP() << opened.status().message();
  const BetonImages& cached = *opened;
  PageCache& cache = *cached.cache();
  std::vector<std::byte> memory(static_cast<size_t>(cache.memory_bytes(1)));
  cache.attach(memory.data(), 0, 1);
  const Loader loader =
      Loader::create({.num_samples = 24, .global_batch = 4, .share = {0, 4}, .micro_batch = 4})
          .or_throw();
  cache.start_reading(loader, cached.train_pages(), {0, 12}, 1);
  for (int64_t step = 0; step < 12; ++step) {
    for (int64_t position = 0; position < 4; ++position) {
      const EpochSample one = loader.at(step, position);
      const auto expected = read_one(file, one.index, one.epoch);
      const auto found = read_one(cached, one.index, one.epoch);
      ASSERT_EQ(found.ok(), one.index != 3);
      EXPECT_EQ(found.status().message(), expected.status().message());
      EXPECT_TRUE(!found.ok() || at::equal(found->image, expected->image));
    }
    cache.finish_step(step);
  }
  EXPECT_GE(cache.bytes_read(), int64_t{6} * 2 << 20);
  cache.stop();
}

TEST_F(BetonImagesTest, RejectsFilesAndPartsWithoutSamples) {
  auto writer =
      BetonWriter::create(path(), {{"x", BetonType::kInt}}, {.num_samples = 1}).or_throw();
  const BetonValue value{.integer = 1};
  base::throw_if_error(writer.append({&value, 1}));
  base::throw_if_error(writer.finish());
  const auto code = [](const fs::path& file, const BetonImagesOptions& options) {
    return BetonImages::create(BetonFile::open(file).or_throw(), options).status().code();
  };
  EXPECT_EQ(code(path(), plain_options()), Code::kUnsupported);
  const fs::path some = write_images(folder_.path() / "y.beton", numbered(3));
  EXPECT_EQ(code(some, plain_options()), Code::kOk);
  EXPECT_EQ(code(some, plain_options(0.999)), Code::kInvalidArgument);
  BetonImagesOptions none = plain_options();
  none.size = 0;
  EXPECT_EQ(code(some, none), Code::kInvalidArgument);
  auto negative = numbered(1);
  negative[0].label = -1;
  EXPECT_EQ(code(write_images(folder_.path() / "z.beton", negative), plain_options()),
            Code::kCorrupt);
}

}  // namespace
}  // namespace hanji::data
