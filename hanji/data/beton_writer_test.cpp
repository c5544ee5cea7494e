#include "hanji/data/beton_writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <set>
#include <thread>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::data {
namespace {

using testing::HasSubstr;

std::span<const std::byte> as_raw(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string written_text(const BetonValue& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

const std::vector<BetonField> kFieldsOfEachType = {{"image", BetonType::kRgbImage},
                                                   {"label", BetonType::kInt},
                                                   {"weight", BetonType::kFloat},
                                                   {"bytes", BetonType::kBytes},
                                                   {"array", BetonType::kNdArray, {2}, "<u2"},
                                                   {"json", BetonType::kJson}};

BetonValue jpeg_value(std::string_view stream) {
  return {.mode = BetonImageMode::kJpeg, .width = 3, .height = 2, .bytes = as_raw(stream)};
}

std::vector<BetonValue> written_sample(int64_t i) {
  return {i % 2 == 0 ? jpeg_value("a jpeg stream")
                     : BetonValue{.width = 1, .height = 1, .bytes = as_raw("rgb")},
          {.integer = i},
          {.number = 0.5},
          {.bytes = as_raw(i % 2 == 0 ? "" : "bytes")},
          {.bytes = as_raw("abcd")},
          {.bytes = as_raw("{\"a\":1}")}};
}

class BetonWriterTest : public testing::Test {
 protected:
  std::filesystem::path path() const { return folder_.path() / "x.beton"; }

  Result<BetonWriter> create(std::vector<BetonField> fields, uint64_t num_samples) const {
    return BetonWriter::create(
        path(), std::move(fields),
        {.num_samples = num_samples, .page_bytes = 4096, .provenance = R"({"from":"a test"})"});
  }

  std::string write(int64_t num_samples) const {
    auto writer = create(kFieldsOfEachType, static_cast<uint64_t>(num_samples)).or_throw();
    for (int64_t i = 0; i < num_samples; ++i) {
      base::throw_if_error(writer.append(written_sample(i)));
    }
    base::throw_if_error(writer.finish());
    return base::read_file(path()).or_throw();
  }

  test::TemporaryFolder folder_;
};

TEST_F(BetonWriterTest, WhatItWritesIsReadBack) {
  write(3);
  const auto file = BetonFile::open(path()).or_throw();
  EXPECT_TRUE(file.has_checksums());
  EXPECT_EQ(file.provenance(), R"({"from":"a test"})");
  const auto first = file.read(0, 0).or_throw();
  EXPECT_EQ(written_text(first), "a jpeg stream");
  EXPECT_EQ(first.mode, BetonImageMode::kJpeg);
  EXPECT_EQ(first.width, 3);
  EXPECT_EQ(first.height, 2);
  EXPECT_EQ(written_text(file.read(1, 0).or_throw()), "rgb");
  EXPECT_EQ(file.read(2, 1).or_throw().integer, 2);
  EXPECT_EQ(file.read(2, 2).or_throw().number, 0.5);
  EXPECT_EQ(written_text(file.read(0, 3).or_throw()), std::string(1, '\0')) << "FFCV misreads none";
  EXPECT_EQ(written_text(file.read(1, 3).or_throw()), "bytes");
  EXPECT_EQ(written_text(file.read(1, 4).or_throw()), "abcd");
  EXPECT_THAT(file.fields()[4].shape, testing::ElementsAre(2));
  EXPECT_EQ(file.fields()[4].dtype, "<u2");
  EXPECT_EQ(written_text(file.read(1, 5).or_throw()), "{\"a\":1}");
  EXPECT_EQ(file.verify([](const BetonMistake& mistake) { ADD_FAILURE() << mistake.message; }), 0);
}

TEST_F(BetonWriterTest, WritesTheSameBytesAgain) { EXPECT_EQ(write(5), write(5)); }

TEST_F(BetonWriterTest, KeepsASampleInOnePageAndTheTableLast) {
  auto writer = create({{"a", BetonType::kBytes}, {"b", BetonType::kBytes}}, 3).or_throw();
  const std::string half(1500, 'x');
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(writer.append(std::vector<BetonValue>(2, {.bytes = as_raw(half)})).ok());
  }
  ASSERT_TRUE(writer.finish().ok());
  const auto file = BetonFile::open(path()).or_throw();
  EXPECT_EQ(file.sections().num_pages, 3);
  EXPECT_EQ(file.sections().num_allocations, 6);
  for (uint64_t row = 0; row < 6; ++row) {
    EXPECT_EQ(file.allocation(row).sample, row / 2);
    EXPECT_EQ(file.page_of(file.allocation(row).begin), row / 2);
    EXPECT_EQ(file.allocation(row).begin % 4096, row % 2 * 1500);
  }
}

TEST_F(BetonWriterTest, WritesScalarsWithoutAPage) {
  auto writer = create({{"label", BetonType::kInt}}, 2).or_throw();
  for (const int64_t label : {3, 4}) ASSERT_TRUE(writer.append({{{.integer = label}}}).ok());
  ASSERT_TRUE(writer.finish().ok());
  const auto file = BetonFile::open(path()).or_throw();
  EXPECT_EQ(file.sections().num_pages, 0);
  EXPECT_EQ(file.sections().num_allocations, 0);
  EXPECT_EQ(file.read(1, 0).or_throw().integer, 4);
}

/// What a flipped byte did; empty: nothing.
std::string outcome_of(const std::string& bytes, const std::string& good) {
  const auto file = BetonFile::parse(as_raw(bytes));
  if (!file.ok()) return "open: " + file.status().message();
  std::string found;
  file->verify([&](const BetonMistake& mistake) {
    found += fmt::format("page {} sample {}: {}\n", mistake.page.value_or(99),
                         mistake.sample.value_or(99), mistake.message);
  });
  const auto expected = BetonFile::parse(as_raw(good)).or_throw();
  for (uint64_t sample = 0; sample < expected.num_samples(); ++sample) {
    for (size_t f = 0; f < expected.fields().size(); ++f) {
      const auto value = file->read(sample, f);
      if (!value.ok()) {
        found += "read: " + value.status().message() + "\n";
        continue;
      }
      const auto same = expected.read(sample, f).or_throw();
      EXPECT_EQ(written_text(*value), written_text(same));
      EXPECT_EQ(value->integer, same.integer);
      EXPECT_EQ(value->number, same.number);
      EXPECT_EQ(value->width, same.width);
    }
  }
  return found;
}

TEST_F(BetonWriterTest, EveryFlippedByteIsReportedAndChangesNoValue) {
  const std::string good = write(3);
  const auto file = BetonFile::parse(as_raw(good)).or_throw();
  const BetonSections& s = file.sections();
  const uint64_t metadata_end = s.metadata_begin + 3 * s.record_bytes;
  uint64_t used_end = s.heap_begin;
  for (uint64_t row = 0; row < s.num_allocations; ++row) {
    used_end = std::max(used_end, file.allocation(row).begin + file.allocation(row).size);
  }
  ASSERT_EQ(s.num_pages, 1);
  std::string bytes = good;
  for (size_t at = 0; at < good.size(); ++at) {
    bytes[at] = static_cast<char>(good[at] ^ (at % 2 == 0 ? 1 : -1));
    const std::string found = outcome_of(bytes, good);
    EXPECT_FALSE(found.empty()) << at;
    if (at >= metadata_end && at < s.heap_begin) {
      EXPECT_THAT(found, HasSubstr(fmt::format("byte {}, between the samples' records", at)));
    }
    if (at >= s.metadata_begin && at < metadata_end) {
      const uint64_t sample = (at - s.metadata_begin) / s.record_bytes;
      EXPECT_THAT(found, HasSubstr(fmt::format("sample {}: the checksum of its record", sample)));
    }
    if (at >= s.heap_begin && at < used_end) {
      EXPECT_THAT(found, HasSubstr("page 0 sample 99: the checksum of its 4096 bytes"));
      EXPECT_THAT(found, testing::ContainsRegex("page 0 sample [012]: the checksum of its bytes"));
      EXPECT_THAT(found, testing::ContainsRegex("read: sample [012], field"));
    }
    bytes[at] = good[at];
  }
}

TEST_F(BetonWriterTest, VerifyEndsEarlyAndBeginsAtAPage) {
  std::string bytes = write(400);
  const auto sections = BetonFile::parse(as_raw(bytes)).or_throw().sections();
  ASSERT_GT(sections.num_pages, 2);
  for (const uint64_t page : {uint64_t{0}, uint64_t{2}}) {
    bytes[sections.heap_begin + page * sections.page_bytes + 3] ^= 1;
  }
  const auto pages_of = [&](const BetonVerifyOptions& options) {
    std::set<uint64_t> pages;
    const auto file = BetonFile::parse(as_raw(bytes)).or_throw();
    file.verify([&](const BetonMistake& one) { pages.insert(one.page.value_or(99)); }, options);
    return pages;
  };
  EXPECT_EQ(pages_of({}), (std::set<uint64_t>{0, 2}));
  EXPECT_EQ(pages_of({.first_page = 1}), (std::set<uint64_t>{2}));
  const auto until_2 = [](uint64_t done, uint64_t) { return done < 2; };
  EXPECT_EQ(pages_of({.proceed = until_2}), (std::set<uint64_t>{0}));
}

TEST_F(BetonWriterTest, OtherSamplesOfADamagedPageAreRead) {
  std::string bytes = write(3);
  bytes[bytes.find("rgb")] = 'R';
  const auto file = BetonFile::parse(as_raw(bytes)).or_throw();
  EXPECT_TRUE(file.read(0, 0).ok());
  EXPECT_TRUE(file.read(2, 5).ok());
  const Status status = file.read(1, 0).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("sample 1, field 'image': the checksum of its bytes in "
                                          "page 0 is"));
}

TEST_F(BetonWriterTest, ASampleIsVerifiedOnceItsBytesWereRead) {
  std::string bytes = write(3);
  bytes[bytes.find("rgb")] = 'R';
  const auto file = BetonFile::parse(as_raw(bytes)).or_throw();
  const auto is_verified = [&] {
    std::string found;
    for (uint64_t sample = 0; sample < 5; ++sample) found += file.is_verified(sample) ? 'y' : 'n';
    return found;
  };
  for (uint64_t sample = 0; sample < 5; ++sample) {
    for (size_t field = 0; field <= file.fields().size(); ++field) {
      file.expect(sample, field);
      static_cast<void>(file.locate(sample, field));
    }
  }
  EXPECT_EQ(is_verified(), "nnnnn");
  for (uint64_t sample = 0; sample < 3; ++sample) static_cast<void>(file.read(sample, 0));
  EXPECT_EQ(is_verified(), "ynynn") << "the bytes of one are damaged, and two are not there";
}

TEST_F(BetonWriterTest, ThreadsReadOneFile) {
  write(200);
  const auto file = BetonFile::open(path()).or_throw();
  std::atomic<int> num_same = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (uint64_t i = 0; i < 200; ++i) {
          num_same += written_text(file.read(i, 5).or_throw()) == "{\"a\":1}";
        }
      });
    }
  }
  EXPECT_EQ(num_same, 800);
  EXPECT_GT(file.sections().num_pages, 1);
}

TEST_F(BetonWriterTest, RejectsSizesThatDoNotFit) {
  const auto one = [this](const BetonField& field, const BetonValue& value) {
    return create({field}, 1).or_throw().append({{value}});
  };
  const std::string large(4097, 'x');
  EXPECT_THAT(one({"b", BetonType::kBytes}, {.bytes = as_raw(large)}).message(),
              HasSubstr("sample 0: 4097 bytes do not fit a page of 4096; set page_bytes to 8192"));
  EXPECT_FALSE(one({"a", BetonType::kNdArray, {2}, "<u2"}, {.bytes = as_raw("abc")}).ok());
  EXPECT_FALSE(
      one({"i", BetonType::kRgbImage}, {.width = 2, .height = 1, .bytes = as_raw("rgb")}).ok());
  EXPECT_FALSE(one({"i", BetonType::kRgbImage}, jpeg_value("")).ok());
  EXPECT_FALSE(create(kFieldsOfEachType, 1).or_throw().append({}).ok());
}

TEST_F(BetonWriterTest, RejectsFieldsThatFfcvMisreads) {
  EXPECT_FALSE(create({}, 1).ok());
  EXPECT_FALSE(create(kFieldsOfEachType, 0).ok());
  EXPECT_FALSE(create({{"", BetonType::kInt}}, 1).ok());
  EXPECT_FALSE(create({{"seventeen_letters", BetonType::kInt}}, 1).ok());
  EXPECT_FALSE(create({{"a", BetonType::kInt}, {"a", BetonType::kInt}}, 1).ok());
  EXPECT_THAT(create({{"a", BetonType::kNdArray, {}, "<f4"}}, 1).status().message(),
              HasSubstr("shape (), which FFCV cannot read"));
  EXPECT_FALSE(create({{"a", BetonType::kNdArray, {2, 0}, "<f4"}}, 1).ok());
  EXPECT_FALSE(
      BetonWriter::create(path(), kFieldsOfEachType, {.num_samples = 1, .page_bytes = 5000}).ok());
}

TEST_F(BetonWriterTest, LeavesNothingUnlessItFinishes) {
  {
    auto writer = create(kFieldsOfEachType, 2).or_throw();
    ASSERT_TRUE(writer.append(written_sample(0)).ok());
    EXPECT_THAT(writer.finish().message(), HasSubstr("1 samples of 2 were added"));
  }
  EXPECT_TRUE(base::list_files(folder_.path()).or_throw().empty());
}

}  // namespace
}  // namespace hanji::data
