#include "hanji/data/bench_file.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/data/beton_writer.h"
#include "hanji/data/internal/test_images.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using testing::HasSubstr;

BenchFileOptions short_bench() {
  return {.stages = plan::parse_image_stages(plan::kUsualImageStages).or_throw(),
          .size = 16,
          .batch = 4,
          .threads = 2,
          .rounds = 3,
          .seconds = 0.001};
}

/// Result  the JPEG that each of them is.
std::string write_six_images(const std::filesystem::path& path) {
  const std::string jpeg = internal::encode_jpeg({});
  auto writer =
      BetonWriter::create(path, {{"image", BetonType::kRgbImage}, {"label", BetonType::kInt}},
                          {.num_samples = 6})
          .or_throw();
  for (int i = 0; i < 6; ++i) {
    const BetonValue values[] = {{.mode = BetonImageMode::kJpeg,
                                  .width = 100,
                                  .height = 80,
                                  .bytes = internal::bytes_of(jpeg)},
                                 {.integer = i}};
    base::throw_if_error(writer.append(values));
  }
  base::throw_if_error(writer.finish());
  return jpeg;
}

TEST(BenchFile, HasARateOfEachPartOfALoader) {
  const test::TemporaryFolder folder;
  const std::string jpeg = write_six_images(folder.path() / "x");
  const FileRates rates = bench_file(folder.path() / "x", short_bench()).or_throw();
  EXPECT_EQ(rates.num_samples, 6);
  EXPECT_EQ(rates.sample_bytes, static_cast<double>(jpeg.size()));
  for (const auto& rate :
       {rates.decoded, rates.cropped, rates.made, rates.loaded, rates.times_decode()}) {
    EXPECT_GT(rate.value_or(0), 0);
  }
  EXPECT_GT(rates.read, 0);
  double sum = 0;
  for (const plan::SamplePart& part : rates.parts) sum += part.seconds;
  EXPECT_NEAR(sum * rates.made.value_or(0), 1, 1e-9) << "parts add up to a sample";
  ASSERT_EQ(rates.parts.size(), 5u);
  EXPECT_EQ(rates.parts[1].name, "decode");
  EXPECT_NE(rates.cold_read && rates.cold_loaded, !rates.why_not_cold.empty());
}

TEST(BenchFile, ColdRatesAreOfPagesThatComeFromTheDiskOrAreRefused) {
  const test::TemporaryFolder folder("/var/tmp");
  write_six_images(folder.path() / "x");
  const auto mapped = BetonFile::open(folder.path() / "x").or_throw();
  for (uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(mapped.read(i, 0).ok());
  const FileRates rates = bench_file(folder.path() / "x", short_bench()).or_throw();
  EXPECT_FALSE(rates.cold_loaded) << "its pages are mapped";
  EXPECT_THAT(rates.why_not_cold, HasSubstr("stays in memory"));
}

TEST(BenchFile, FilesWithoutImagesAreRead) {
  const test::TemporaryFolder folder;
  auto writer =
      BetonWriter::create(folder.path() / "x", {{"x", BetonType::kInt}}, {.num_samples = 1})
          .or_throw();
  const BetonValue value{.integer = 1};
  base::throw_if_error(writer.append({&value, 1}));
  base::throw_if_error(writer.finish());
  const FileRates rates = bench_file(folder.path() / "x", short_bench()).or_throw();
  EXPECT_GT(rates.read, 0);
  EXPECT_FALSE(rates.loaded);
  EXPECT_THAT(rates.bottleneck(), HasSubstr("reading"));
}

/// Bytes per second.
double copy_rate(std::span<const std::byte> from) {
  std::vector<std::byte> to(from.size());
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const int64_t begin = base::now_ns();
    std::memcpy(to.data(), from.data(), from.size());
    best = std::max(best, static_cast<double>(from.size()) /
                              (static_cast<double>(base::now_ns() - begin) * 1e-9));
  }
  return best;
}

TEST(BenchFile, ReadingIsBoundByMemoryAndNotByAdditions) {
  const test::TemporaryFolder folder;
  const std::vector<std::byte> bytes(size_t{16} << 20, std::byte{3});
  auto writer = BetonWriter::create(folder.path() / "x", {{"x", BetonType::kBytes}},
                                    {.num_samples = 1, .page_bytes = uint64_t{32} << 20})
                    .or_throw();
  const BetonValue value{.bytes = bytes};
  base::throw_if_error(writer.append({&value, 1}));
  base::throw_if_error(writer.finish());
  BenchFileOptions options = short_bench();
  options.seconds = 0.02;
  const FileRates rates = bench_file(folder.path() / "x", options).or_throw();
  // A copy reads as many bytes and writes them too; a byte at a time is a fortieth of it.
  EXPECT_GT(rates.read * rates.sample_bytes, copy_rate(bytes) / 8);
}

TEST(BenchFile, EndsEarlyIfAsked) {
  const test::TemporaryFolder folder;
  auto writer =
      BetonWriter::create(folder.path() / "x", {{"x", BetonType::kInt}}, {.num_samples = 1})
          .or_throw();
  const BetonValue value{.integer = 1};
  base::throw_if_error(writer.append({&value, 1}));
  base::throw_if_error(writer.finish());
  BenchFileOptions options = short_bench();
  options.proceed = [](int64_t, int64_t) { return false; };
  EXPECT_EQ(bench_file(folder.path() / "x", options).status().code(), Code::kCancelled);
}

TEST(BenchFile, TheBottleneckIsThePartThatTakesMostOfASample) {
  FileRates rates{.threads = 2,
                  .read = 10'000,
                  .decoded = 1000,
                  .cropped = 1500,
                  .made = 1000,
                  .parts = {{"read", 0.0001}, {"decode", 0.00067}, {"flip", 0.00023}},
                  .loaded = 1900};
  EXPECT_EQ(rates.bottleneck(),
            "decode, 67 % of a sample's time; smaller or raw images load faster");
  EXPECT_DOUBLE_EQ(rates.times_decode().value(), 1.9);
  rates.parts[2].seconds = 0.0007;
  EXPECT_EQ(rates.bottleneck(), "flip, 70 % of a sample's time");
  rates.loaded = 1000;
  EXPECT_THAT(rates.bottleneck(), HasSubstr("the 2 threads: together they load 50 %"));
}

}  // namespace
}  // namespace hanji::data
