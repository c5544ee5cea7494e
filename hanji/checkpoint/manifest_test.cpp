#include "hanji/checkpoint/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "hanji/base/checksum.h"
#include "hanji/base/json.h"

namespace hanji::checkpoint {
namespace {

using testing::HasSubstr;

Manifest example() {
  Manifest manifest{.step = 20,
                    .num_samples = 240,
                    .job = R"({"seed":7,"grain":1})",
                    .plan = R"({"ranks":2})",
                    .state_hash = "0123",
                    .validation_loss = 0.1,
                    .writer = "0.1.0"};
  const TensorRecord tensor{
      "wte", DType::kBFloat16, {65, 32}, {.size = 65 * 32}, 0xFEDCBA9876543210};
  const TensorRecord run{"wpe", DType::kFloat32, {8, 32}, {64, 32}, 7};
  const TensorRecord columns{"mlp", DType::kFloat32, {8, 32}, {16, 10, 32, 8}, 8};
  manifest.files.push_back(
      {std::string(kModelFile), 4242, 1, {tensor, run, columns}, {3, {{"dp", 0}, {"fsdp", 3}}}});
  manifest.files.push_back({std::string(kOptimizerFile), 80, 2, {}});
  return manifest;
}

// Replaces a part of a manifest and seals it again, as somebody hostile would.
std::string forged(const std::string& from, const std::string& to) {
  std::string text = to_text(example()).or_throw();
  const size_t seal = text.rfind(",\n \"checksum\"");
  text.resize(seal);
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  text.replace(at, from.size(), to);
  const uint64_t sum = base::xxh3(std::as_bytes(std::span(text)));
  return fmt::format("{},\n \"checksum\": \"{:016x}\"\n}}\n", text, sum);
}

TEST(Manifest, ReturnsFromItsText) {
  const Manifest manifest = example();
  const auto text = to_text(manifest);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const auto back = parse_manifest(*text);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->step, 20);
  EXPECT_EQ(back->num_samples, 240);
  EXPECT_EQ(back->job, manifest.job);
  EXPECT_EQ(back->plan, manifest.plan);
  EXPECT_EQ(back->state_hash, "0123");
  EXPECT_EQ(back->validation_loss, 0.1);
  EXPECT_EQ(back->writer, "0.1.0");
  ASSERT_EQ(back->files.size(), 2u);
  EXPECT_EQ(back->files[0].size_bytes, 4242);
  EXPECT_EQ(back->files[1].header_checksum, 2u);
  const TensorRecord& tensor = back->files[0].tensors.at(0);
  EXPECT_EQ(tensor.name, "wte");
  EXPECT_EQ(tensor.dtype, DType::kBFloat16);
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{65, 32}));
  EXPECT_EQ(tensor.checksum, 0xFEDCBA9876543210);
  EXPECT_TRUE(tensor.is_whole());
  EXPECT_EQ(tensor.form().name, "wte");
  const TensorRecord& run = back->files[0].tensors.at(1);
  EXPECT_EQ(run.elements, (layout::StridedRange{64, 32}));
  EXPECT_EQ(run.form().name, "wpe[64:96]");
  EXPECT_EQ(run.form().shape, (std::vector<int64_t>{32}));
  const TensorRecord& columns = back->files[0].tensors.at(2);
  EXPECT_EQ(columns.elements, (layout::StridedRange{16, 10, 32, 8}));
  EXPECT_EQ(columns.form().name, "mlp[16:26:32:8]");
  EXPECT_EQ(columns.form().shape, (std::vector<int64_t>{8, 10}));
  EXPECT_EQ(back->files[0].writer, manifest.files[0].writer);
}

TEST(Manifest, WithoutSeveralRunsOfATensorIsThatOfVersion2) {
  Manifest manifest = example();
  EXPECT_THAT(to_text(manifest).or_throw(), HasSubstr("\"format_version\": 3"));
  manifest.files[0].tensors.pop_back();
  EXPECT_THAT(to_text(manifest).or_throw(), HasSubstr("\"format_version\": 2"));
}

TEST(Manifest, OfVersion1NamesNoWriterAndIsRead) {
  Manifest manifest = example();
  manifest.files[0].tensors.resize(1);
  std::string text = to_text(manifest).or_throw();
  text.resize(text.rfind(",\n \"checksum\""));
  base::Json json = base::parse_json(text + "}").or_throw();
  json["format_version"] = 1;
  for (auto& file : json["files"]) file.erase("writer");
  text = json.dump(1);
  text.resize(text.size() - 2);
  const uint64_t sum = base::xxh3(std::as_bytes(std::span(text)));
  const auto back = parse_manifest(fmt::format("{},\n \"checksum\": \"{:016x}\"\n}}\n", text, sum));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->files[0].writer, WriterRecord{});
  EXPECT_TRUE(back->files[0].tensors[0].is_whole());
}

TEST(Manifest, NamesOfFilesAreThoseOfWholesAndParts) {
  EXPECT_EQ(file_name(StateKind::kModel, 0, 1), kModelFile);
  EXPECT_EQ(file_name(StateKind::kOptimizer, 3, 4), "optimizer.part_3.safetensors");
  EXPECT_EQ(kind_of_file("model.part_12.safetensors"), StateKind::kModel);
  EXPECT_EQ(kind_of_file(kOptimizerFile), StateKind::kOptimizer);
  for (const char* name : {"", "model", "model.part_.safetensors", "model.part_01.safetensors",
                           "model.part_-1.safetensors", "model.part_1.safetensors/../x",
                           "model.part_99999999999.safetensors", "model.part_1.safetensorsx"}) {
    EXPECT_EQ(kind_of_file(name), std::nullopt) << name;
  }
}

TEST(Manifest, NeedsNoValidationLoss) {
  Manifest manifest = example();
  manifest.validation_loss.reset();
  EXPECT_EQ(parse_manifest(to_text(manifest).or_throw())->validation_loss, std::nullopt);
}

TEST(Manifest, SeesEveryFlippedBit) {
  const std::string good = to_text(example()).or_throw();
  for (size_t byte = 0; byte < good.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[byte] = static_cast<char>(bad[byte] ^ 1 << bit);
      EXPECT_FALSE(parse_manifest(bad).ok()) << byte;
    }
  }
}

TEST(Manifest, RefusesForgeriesWithAGoodSeal) {
  const std::vector<std::array<std::string, 3>> forgeries = {
      {"\"step\": 20", "\"step\": -1", "step must be"},
      {"\"step\": 20", "\"step\": 18446744073709551615", "step must be"},
      {"\"step\": 20", "\"step\": 2.5", "step must be"},
      {"\"step\": 20", "\"step\": 20, \"step\": 21", "comes twice"},
      {"\"step\"", "\"stop\"", "step must be"},
      {"hanji checkpoint", "other", "format must be"},
      {"model.safetensors", "../../etc/passwd", "files.name must be"},
      {"model.safetensors", "/etc/passwd", "files.name must be"},
      {"bfloat16", "float8", "dtype must be"},
      {"65,", "-65,", "shape must be"},
      {"96\n", "960\n", "elements must be"},
      {" 8\n", " 9\n", "elements must be"},
      {" 8\n", " 9223372036854775807\n", "elements must be"},
      {" 8\n", " 1\n", "elements must be"},
      {" 8\n", " 8, 1\n", "elements must be"},
      {"32,\n      8\n", "9,\n      8\n", "elements must be"},
      {"32,\n      8\n", "9223372036854775807,\n      8\n", "elements must be"},
      {"16,\n      26", "26,\n      26", "elements must be"},
      {"\"rank\": 3", "\"rank\": -3", "rank must be"},
      {"\"fsdp\": 3", "\"fsdp\": \"3\"", "coordinates must be"},
      {"fedcba9876543210", "fedcba987654321", "xxh3 must be"},
      {"fedcba9876543210", "fedcba987654321g", "xxh3 must be"},
      {"\"job\": {", "\"job\": 7, \"jobs\": {", "job must be an object"},
      {"\"plan\": {", "\"plan\": [" + std::string(100, '[') + "{", "brackets open"},
  };
  for (const auto& [from, to, reason] : forgeries) {
    const Status status = parse_manifest(forged(from, to)).status();
    EXPECT_EQ(status.code(), Code::kCorrupt) << to;
    EXPECT_THAT(status.message(), HasSubstr(reason)) << to;
  }
}

TEST(Manifest, SaysThatItIsNewerThanTheProgram) {
  const Status status =
      parse_manifest(forged("\"format_version\": 3", "\"format_version\": 4")).status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("format version 4, and this program reads 1 to 3"));
}

TEST(Manifest, RefusesTextOfAnyOtherLength) {
  EXPECT_FALSE(parse_manifest("").ok());
  EXPECT_FALSE(parse_manifest("{}").ok());
  EXPECT_FALSE(parse_manifest(std::string(size_t{17} << 20, ' ')).ok());
}

}  // namespace
}  // namespace hanji::checkpoint
