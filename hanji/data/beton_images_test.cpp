#include "hanji/data/beton_images.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <mutex>
#include <set>

#include "hanji/data/batch.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/internal/test_images.h"
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
