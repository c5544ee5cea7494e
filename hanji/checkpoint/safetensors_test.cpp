#include "hanji/checkpoint/safetensors.h"

#include <gmock/gmock.h>

#include "hanji/checkpoint/internal/test_state.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

using internal::TestState;
using testing::HasSubstr;

const std::vector<std::byte> kZeros(64);

NamedTensor zeros(std::string name, DType dtype, std::vector<int64_t> shape) {
  const auto bytes = static_cast<size_t>(*dense_bytes(dtype, shape));
  return {std::move(name), dtype, std::move(shape), std::span(kZeros).first(bytes)};
}

TEST(WriteSafetensors, WritesTheFormatByteForByte) {
  const test::TemporaryFolder temporary;
  const auto path = temporary.path() / "model.safetensors";
  const std::vector<float> values = {1.0f, -2.5f};
  const std::vector<uint8_t> last = {7};
  const std::vector<NamedTensor> tensors = {
      {"b", DType::kUInt8, {1}, std::as_bytes(std::span(last))},
      {"a", DType::kFloat32, {2}, std::as_bytes(std::span(values))},
  };
  ASSERT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}}).ok());
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}}       )";
  ASSERT_EQ(header.size() % 8, 0u);
  const std::string expected = static_cast<char>(header.size()) + std::string(7, '\0') + header +
                               std::string("\x00\x00\x80\x3F\x00\x00\x20\xC0\x07", 9);
  EXPECT_EQ(internal::read_bytes(path), expected);
}

TEST(SafetensorsFile, ReturnsEveryTensorThatWasWritten) {
  const test::TemporaryFolder temporary;
  const auto path = temporary.path() / "model.safetensors";
  const TestState state(3);
  ASSERT_TRUE(write_safetensors(path, state.model(), {{"key \"\n", "v\xC3\xA9"}}).ok());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(internal::holds(in_one_run(file->tensors()), state.model()));
  EXPECT_EQ(file->metadata().at("key \"\n"), "v\xC3\xA9");
  EXPECT_EQ(file->find("absent"), nullptr);
}

TEST(SafetensorsFile, OutlivesItsFileAndItsCopies) {
  const test::TemporaryFolder temporary;
  const auto path = temporary.path() / "model.safetensors";
  const TestState state(3);
  ASSERT_TRUE(write_safetensors(path, state.model()).ok());
  SafetensorsFile copy = SafetensorsFile::open(path).or_throw();
  std::filesystem::remove(path);
  EXPECT_TRUE(internal::holds(in_one_run(copy.tensors()), state.model()));
}

TEST(WriteSafetensors, WritesEveryElementType) {
  const test::TemporaryFolder temporary;
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < base::kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    tensors.push_back(zeros(std::string(base::name_of(dtype)), dtype, {3}));
  }
  ASSERT_TRUE(write_safetensors(temporary.path() / "all", tensors).ok());
  const auto file = SafetensorsFile::open(temporary.path() / "all");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(internal::holds(in_one_run(file->tensors()), tensors));
}

TEST(WriteSafetensors, WritesNoTensorAtAll) {
  const test::TemporaryFolder temporary;
  ASSERT_TRUE(write_safetensors(temporary.path() / "none", {}).ok());
  const auto file = SafetensorsFile::open(temporary.path() / "none");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file->tensors().empty());
}

TEST(WriteSafetensors, RefusesWhatNoReaderCouldTake) {
  const test::TemporaryFolder temporary;
  const auto path = temporary.path() / "f";
  const auto message = [&path](std::vector<NamedTensor> tensors) {
    const Status status = write_safetensors(path, tensors);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message({zeros("a", DType::kUInt8, {1}), zeros("a", DType::kUInt8, {2})}),
              HasSubstr("two tensors are named 'a'"));
  EXPECT_THAT(message({zeros("__metadata__", DType::kUInt8, {1})}), HasSubstr("reserved"));
  EXPECT_THAT(message({zeros("\xFF", DType::kUInt8, {1})}), HasSubstr("not UTF-8"));
  NamedTensor wrong = zeros("a", DType::kFloat32, {4});
  wrong.shape = {5};
  EXPECT_THAT(message({wrong}), HasSubstr("float32 [5] but comes with 16 bytes"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(WriteSafetensors, ReplacesNoFile) {
  const test::TemporaryFolder temporary;
  ASSERT_TRUE(write_safetensors(temporary.path() / "f", {}).ok());
  EXPECT_FALSE(write_safetensors(temporary.path() / "f", {}).ok());
}

TEST(DenseBytes, KnowsOverflowFromEmpty) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_EQ(dense_bytes(DType::kFloat32, std::vector<int64_t>{2, 3}), 24);
  EXPECT_EQ(dense_bytes(DType::kFloat64, {}), 8);
  EXPECT_EQ(dense_bytes(DType::kFloat32, std::vector<int64_t>{big, big}), std::nullopt);
  EXPECT_EQ(dense_bytes(DType::kFloat32, std::vector<int64_t>{big, big, 0}), 0);
  EXPECT_EQ(dense_bytes(DType::kFloat32, std::vector<int64_t>{0, -1}), std::nullopt);
}

}  // namespace
}  // namespace hanji::checkpoint
