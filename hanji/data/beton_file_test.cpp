#include "hanji/data/beton_file.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "hanji/base/clock.h"
#include "hanji/data/internal/test_files.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSmallPage = 4096;

template <class T>
std::string packed_value(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

/// A file as FFCV lays it out, built apart from BetonWriter.
struct FfcvFile {
  uint16_t version = 2;
  uint32_t page_bytes = kSmallPage;
  uint64_t num_samples = 0;
  std::string descriptors = {};
  std::string records = {};
  std::string heap = {};
  std::string table = {};
  std::string behind_heap = {};

  void add_field(uint8_t type, std::string name, std::string arguments = {}) {
    name.resize(16);
    arguments.resize(1024);
    descriptors += static_cast<char>(type) + name + arguments;
  }
  void add_row(uint64_t sample, uint64_t begin, uint64_t size) {
    table += packed_value(sample) + packed_value(begin) + packed_value(size);
  }
  std::string bytes() const {
    std::string pages = heap;
    pages.resize((heap.size() + page_bytes - 1) / page_bytes * page_bytes);
    std::string head = descriptors + records;
    if (!pages.empty())
      head.resize((24 + head.size() + kSmallPage - 1) / kSmallPage * kSmallPage - 24);
    const uint64_t table_begin = 24 + head.size() + pages.size() + behind_heap.size();
    return packed_value(version) + packed_value(static_cast<uint16_t>(descriptors.size() / 1041)) +
           packed_value(page_bytes) + packed_value(num_samples) + packed_value(table_begin) + head +
           pages + behind_heap + table;
  }
};

std::string array_arguments(std::vector<uint64_t> shape, const std::string& type) {
  shape.resize(32);
  const std::string text = "[[\"\", \"" + type + "\"]]";
  return std::string(reinterpret_cast<const char*>(shape.data()), 256) +
         packed_value(uint64_t{text.size()}) + text;
}

std::string beton_text(const BetonValue& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

std::string image_record(uint8_t mode, uint16_t width, uint16_t height, uint64_t begin) {
  return packed_value(mode) + packed_value(width) + packed_value(height) + packed_value(begin);
}

Result<BetonFile> parse_beton(const std::string& bytes) {
  return BetonFile::parse(std::as_bytes(std::span(bytes)));
}

/// Images and bytes: records of 29 bytes, which FFCV packs without alignment.
FfcvFile images_and_bytes() {
  FfcvFile file{.num_samples = 2};
  file.add_field(2, "image");
  file.add_field(3, "sixteen_letters_");
  file.records = image_record(0, 500, 375, kSmallPage) + packed_value(uint64_t{kSmallPage + 4}) +
                 packed_value(uint64_t{3}) + image_record(1, 2, 1, kSmallPage + 7) +
                 packed_value(uint64_t{kSmallPage + 13}) + packed_value(uint64_t{0});
  file.heap =
      "jpeg"
      "abc"
      "rgbRGB";
  file.add_row(1, kSmallPage + 7, 6);
  file.add_row(1, kSmallPage + 13, 0);
  file.add_row(0, kSmallPage, 4);
  file.add_row(0, kSmallPage + 4, 3);
  return file;
}

TEST(BetonFile, ReadsRecordsOf29Bytes) {
  const std::string bytes = images_and_bytes().bytes();
  const auto file = parse_beton(bytes).or_throw();
  EXPECT_EQ(file.sections().record_bytes, 29);
  EXPECT_EQ(file.fields()[1].name, "sixteen_letters_");
  const auto jpeg = file.read(0, 0).or_throw();
  EXPECT_EQ(jpeg.mode, BetonImageMode::kJpeg);
  EXPECT_EQ(jpeg.width, 500);
  EXPECT_EQ(jpeg.height, 375);
  EXPECT_EQ(beton_text(jpeg), "jpeg");
  EXPECT_EQ(beton_text(file.read(0, 1).or_throw()), "abc");
  EXPECT_EQ(beton_text(file.read(1, 0).or_throw()), "rgbRGB");
  EXPECT_EQ(beton_text(file.read(1, 1).or_throw()), "");
  EXPECT_EQ(file.verify([](const BetonMistake& mistake) { FAIL() << mistake.message; }), 0);
}

TEST(BetonFile, PagesAreThoseOfTheFieldInTheRecord) {
  FfcvFile file{.num_samples = 3};
  file.add_field(2, "image");
  file.add_field(3, "text");
  // Without rows of the table, which raw images do without; the text of sample 1 is in another page.
  const uint64_t second = 2 * kSmallPage;
  file.records = image_record(1, 2, 1, kSmallPage) + packed_value(kSmallPage + 6) +
                 packed_value(uint64_t{1}) + image_record(1, 2, 1, second) +
                 packed_value(kSmallPage + 7) + packed_value(uint64_t{1}) +
                 image_record(1, 2, 1, uint64_t{9} << 40) + packed_value(second + 6) +
                 packed_value(uint64_t{1});
  file.heap.resize(2 * kSmallPage, 'x');
  const std::string bytes = file.bytes();
  const auto parsed = parse_beton(bytes).or_throw();
  EXPECT_THAT(parsed.sample_pages(0), testing::ElementsAre(0, 1, 0)) << "0 for what is nowhere";
  EXPECT_THAT(parsed.sample_pages(1), testing::ElementsAre(0, 0, 1));
}

TEST(BetonFile, ThreadsFindTheSizesOfJpegsInOneTable) {
  const std::string bytes = images_and_bytes().bytes();
  const auto file = parse_beton(bytes).or_throw();
  std::atomic<int> num_same = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] { num_same += beton_text(file.read(0, 0).or_throw()) == "jpeg"; });
    }
  }
  EXPECT_EQ(num_same, 4);
}

TEST(BetonFile, FindsAJpegBehindBytesOfLengthZeroOfTheSameSample) {
  FfcvFile file{.num_samples = 1};
  file.add_field(3, "bytes");
  file.add_field(2, "image");
  file.records = packed_value(uint64_t{kSmallPage}) + packed_value(uint64_t{0}) +
                 image_record(0, 8, 8, kSmallPage);
  file.heap = "jpeg";
  file.add_row(0, kSmallPage, 0);
  file.add_row(0, kSmallPage, 4);
  const std::string bytes = file.bytes();
  EXPECT_EQ(beton_text(parse_beton(bytes).or_throw().read(0, 1).or_throw()), "jpeg");
}

TEST(BetonFile, ReadsEveryType) {
  constexpr uint64_t kHeap = 2 * kSmallPage;  // behind seven descriptors
  FfcvFile file{.num_samples = 1};
  file.add_field(2, "image");
  file.add_field(1, "label");
  file.add_field(0, "weight");
  file.add_field(3, "bytes");
  file.add_field(4, "array", array_arguments({2, 1}, ">f8"));
  file.add_field(5, "json");
  file.add_field(6, "tensor", array_arguments({}, "|u1"));
  file.records = image_record(1, 1, 1, kHeap) + std::string(3, '\0') + packed_value(int64_t{-7}) +
                 packed_value(0.5) + packed_value(uint64_t{kHeap + 3}) + packed_value(uint64_t{2}) +
                 packed_value(uint64_t{kHeap + 5}) + packed_value(uint64_t{kHeap + 21}) +
                 packed_value(uint64_t{3}) + packed_value(uint64_t{kHeap + 24});
  file.heap = std::string(
      "rgb"
      "by"
      "0123456789abcdef"
      "{}\0"
      "t",
      25);
  const std::string bytes = file.bytes();
  const auto beton = parse_beton(bytes).or_throw();
  EXPECT_EQ(beton.sections().record_bytes, 80);
  EXPECT_EQ(beton_text(beton.read(0, 0).or_throw()), "rgb");
  EXPECT_EQ(beton.read(0, 1).or_throw().integer, -7);
  EXPECT_EQ(beton.read(0, 2).or_throw().number, 0.5);
  EXPECT_EQ(beton_text(beton.read(0, 3).or_throw()), "by");
  EXPECT_EQ(beton_text(beton.read(0, 4).or_throw()), "0123456789abcdef");
  EXPECT_EQ(beton.fields()[4].dtype, ">f8");
  EXPECT_THAT(beton.fields()[4].shape, testing::ElementsAre(2, 1));
  EXPECT_EQ(beton_text(beton.read(0, 5).or_throw()), "{}");
  EXPECT_EQ(beton_text(beton.read(0, 6).or_throw()), "t");
  EXPECT_EQ(beton.find_field("weight").or_throw(), 2);
  EXPECT_THAT(beton.find_field("x").status().message(), HasSubstr("image, label, weight"));
}

TEST(BetonFile, ReadsScalarsWithoutAPage) {
  FfcvFile file{.num_samples = 5};
  file.add_field(1, "label");
  for (int64_t i = 0; i < 5; ++i) file.records += packed_value(i * i);
  const std::string bytes = file.bytes();
  EXPECT_EQ(bytes.size(), 1105);
  const auto beton = parse_beton(bytes).or_throw();
  EXPECT_EQ(beton.read(4, 0).or_throw().integer, 16);
  EXPECT_EQ(beton.sections().num_pages, 0);
  EXPECT_EQ(beton.read(5, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(beton.read(0, 1).status().code(), Code::kInvalidArgument);
}

TEST(BetonFile, OpensWithoutWorkPerSample) {
  FfcvFile file{.num_samples = 1'280'000};
  file.add_field(2, "image");
  file.add_field(1, "label");
  file.records.resize(24 * file.num_samples);
  file.table.resize(24 * file.num_samples);
  const std::string bytes = file.bytes();
  const int64_t begin = base::now_ns();
  auto beton = parse_beton(bytes);
  EXPECT_LT(base::now_ns() - begin, 50'000'000);
  EXPECT_EQ(std::move(beton).or_throw().num_samples(), 1'280'000);
}

struct DamagedFile {
  std::string name;
  std::function<void(std::string&)> damage;
  Code code;
  std::string message;
};

template <class T>
std::function<void(std::string&)> replace_at(size_t offset, T value) {
  return [=](std::string& bytes) { bytes.replace(offset, sizeof(T), packed_value(value)); };
}

TEST(BetonFile, RejectsWhatDoesNotAgree) {
  const std::vector<DamagedFile> all = {
      {"empty", [](std::string& bytes) { bytes.clear(); }, Code::kCorrupt, "0 bytes hold no"},
      {"version", replace_at(0, uint16_t{3}), Code::kUnsupported, "version 3 at byte 0 is not 2"},
      {"no field", replace_at(2, uint16_t{0}), Code::kCorrupt, "0 fields"},
      {"fields", replace_at(2, uint16_t{60000}), Code::kCorrupt, "60000 fields"},
      {"page", replace_at(4, uint32_t{4097}), Code::kCorrupt, "pages of 4097 bytes"},
      {"small page", replace_at(4, uint32_t{512}), Code::kCorrupt, "pages of 512 bytes"},
      {"large page", replace_at(4, uint32_t{1 << 30}), Code::kCorrupt, "no whole pages"},
      {"samples", replace_at(8, uint64_t{1} << 60), Code::kCorrupt,
       "samples at byte 8 need records"},
      {"unfinished", replace_at(16, uint64_t{0}), Code::kCorrupt, "the writer did not finish"},
      {"table", replace_at(16, UINT64_MAX), Code::kCorrupt, "it was cut"},
      {"early table", replace_at(16, uint64_t{24}), Code::kCorrupt, "it was cut"},
      {"stray", [](std::string& bytes) { bytes += std::string(30, 'x'); }, Code::kCorrupt, "cut"},
      {"type", replace_at(24, uint8_t{7}), Code::kCorrupt, "field 'image' has type 7"},
      {"custom", replace_at(24, uint8_t{255}), Code::kUnsupported,
       "'image' has a custom type (255)"},
      {"name", replace_at(25, uint8_t{200}), Code::kCorrupt, "not ASCII"},
      {"no name", replace_at(25, uint8_t{0}), Code::kCorrupt, "empty"},
  };
  for (const DamagedFile& one : all) {
    std::string bytes = images_and_bytes().bytes();
    one.damage(bytes);
    const auto file = parse_beton(bytes);
    EXPECT_EQ(file.status().code(), one.code) << one.name << ": " << file.status().message();
    EXPECT_THAT(file.status().message(), HasSubstr(one.message)) << one.name;
  }
}

TEST(BetonFile, RejectsArraysWithoutASize) {
  const auto open = [](const std::string& arguments) {
    FfcvFile file;
    file.add_field(4, "array", arguments);
    return parse_beton(file.bytes()).status();
  };
  EXPECT_TRUE(open(array_arguments({3}, "<i8")).ok());
  EXPECT_THAT(open(array_arguments({2, 0, 3}, "<i8")).message(), HasSubstr("dimension 1"));
  EXPECT_EQ(open(array_arguments({uint64_t{1} << 40, uint64_t{1} << 40}, "|u1")).code(),
            Code::kCorrupt);
  EXPECT_THAT(open(array_arguments({3}, "<U8")).message(), HasSubstr("\"<U8\""));
  EXPECT_EQ(open(array_arguments({3}, "<i8\"], [\"b\", \"<i8")).code(), Code::kUnsupported);
  EXPECT_EQ(open(std::string(256, '\0') + packed_value(UINT64_MAX)).code(), Code::kCorrupt);
  EXPECT_EQ(open(std::string(1024, '\0')).code(), Code::kCorrupt);
}

TEST(BetonFile, RejectsValuesOutsideOfOnePage) {
  const uint64_t record = 24 + 2 * 1041;
  for (const uint64_t begin :
       {uint64_t{0}, kSmallPage - 1, 2 * kSmallPage - 2, 2 * kSmallPage, UINT64_MAX}) {
    std::string bytes = images_and_bytes().bytes();
    replace_at(record + 13, begin)(bytes);
    const auto file = parse_beton(bytes).or_throw();
    const Status status = file.read(0, 1).status();
    EXPECT_EQ(status.code(), Code::kCorrupt) << begin;
    EXPECT_THAT(status.message(), HasSubstr("sample 0, field 'sixteen_letters_': 3 bytes at byte"));
    EXPECT_TRUE(file.read(1, 0).ok());
  }
  std::string bytes = images_and_bytes().bytes();
  replace_at(record + 21, UINT64_MAX)(bytes);
  EXPECT_EQ(parse_beton(bytes).or_throw().read(0, 1).status().code(), Code::kCorrupt);
}

TEST(BetonFile, RejectsAJpegWithoutARowInTheTable) {
  FfcvFile golden = images_and_bytes();
  golden.table.clear();
  golden.add_row(7, kSmallPage, 4);
  const std::string bytes = golden.bytes();
  const auto file = parse_beton(bytes).or_throw();
  EXPECT_THAT(file.read(0, 0).status().message(), HasSubstr("no row for its JPEG at byte 4096"));
  std::vector<std::string> found;
  file.verify([&](const BetonMistake& mistake) { found.push_back(mistake.message); });
  EXPECT_THAT(found,
              testing::ElementsAre(HasSubstr("names a sample that is not there"),
                                   HasSubstr("field 'image': the allocation table has no row"),
                                   HasSubstr("field 'sixteen_letters_': the allocation table"),
                                   HasSubstr("field 'image': the allocation table has no row")));
}

TEST(BetonFile, RejectsBytesBeforeTheTableThatAreNoPages) {
  FfcvFile golden = images_and_bytes();
  golden.behind_heap = std::string(100, 'x');
  EXPECT_THAT(parse_beton(golden.bytes()).status().message(), HasSubstr("no whole pages"));
}

TEST(BetonFile, RejectsEveryTruncation) {
  const std::string bytes = images_and_bytes().bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const auto file = parse_beton(cut);
    if (!file.ok()) continue;
    // What is left of the table is whole rows.
    EXPECT_EQ((bytes.size() - size) % 24, 0);
    EXPECT_GT(file->verify([](const BetonMistake&) {}), 0) << size;
  }
}

TEST(BetonFile, NamesTheFileInItsErrors) {
  const test::TemporaryFolder folder;
  const auto path = internal::write_file(folder.path(), "x.beton", "no");
  EXPECT_THAT(BetonFile::open(path).status().message(), HasSubstr("x.beton: 2 bytes hold no"));
  EXPECT_EQ(BetonFile::open(folder.path() / "y").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace hanji::data
