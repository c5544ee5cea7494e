#include "hanji/checkpoint/tensors.h"

#include <gmock/gmock.h>
#include <torch/nn.h>

#include "hanji/base/file.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

using testing::HasSubstr;

struct SmallNetImpl : torch::nn::Module {
  explicit SmallNetImpl(int64_t width) : linear(3, width) {
    register_module("linear", linear);
    register_buffer("count", torch::zeros({2}, torch::kLong));
  }
  torch::nn::Linear linear;
};

SafetensorsFile written(const test::TemporaryFolder& temporary,
                        const std::vector<TensorEntry>& entries) {
  const auto path = temporary.path() / "f";
  throw_if_error(write_safetensors(path, views_of(entries).or_throw()));
  return SafetensorsFile::open(path).or_throw();
}

TEST(Tensors, ReturnToAModuleBitForBit) {
  const test::TemporaryFolder temporary;
  torch::manual_seed(1);
  const SmallNetImpl saved(4);
  const auto file = written(temporary, state_of(saved));
  EXPECT_NE(file.find("linear.weight"), nullptr);
  EXPECT_NE(file.find("count"), nullptr);
  const SmallNetImpl loaded(4);
  ASSERT_FALSE(torch::equal(saved.linear->weight, loaded.linear->weight));
  const Status status = copy_into(file, state_of(loaded));
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(torch::equal(saved.linear->weight, loaded.linear->weight));
  EXPECT_TRUE(torch::equal(saved.linear->bias, loaded.linear->bias));
}

TEST(Tensors, KeepTheirElementType) {
  const test::TemporaryFolder temporary;
  std::vector<TensorEntry> entries;
  for (const auto type : {torch::kDouble, torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    entries.push_back({c10::toString(type), torch::randn({2, 3}).to(type)});
  }
  const auto file = written(temporary, entries);
  std::vector<TensorEntry> loaded;
  for (const auto& [name, tensor] : entries) loaded.push_back({name, torch::zeros_like(tensor)});
  ASSERT_TRUE(copy_into(file, loaded).ok());
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_TRUE(torch::equal(entries[i].tensor, loaded[i].tensor)) << entries[i].name;
  }
}

/// A file as others write it: a header of no multiple of 8 bytes, and a byte before the first value.
SafetensorsFile unaligned(const test::TemporaryFolder& temporary,
                          const std::vector<TensorEntry>& entries, const std::string& more = "") {
  const auto views = views_of(entries).or_throw();
  const auto file = written(temporary, entries);
  const std::span<const std::byte> header = file.header().subspan(8);
  std::string json(reinterpret_cast<const char*>(header.data()), header.size());
  json.erase(json.find_last_of('}'));
  const auto data = static_cast<size_t>(file.size_bytes()) - file.header().size();
  std::string bytes = "x";
  for (const NamedTensor& one : file.tensors()) {
    bytes.append(reinterpret_cast<const char*>(one.bytes.data()), one.bytes.size());
  }
  for (size_t at = 0; (at = json.find("offsets\":[", at)) != json.npos;) {
    at += std::string_view("offsets\":[").size();
    const size_t comma = json.find(',', at);
    const size_t end = json.find(']', at);
    const auto moved = [](const std::string& number) {
      return std::to_string(std::stoll(number) + 1);
    };
    json.replace(at, end - at,
                 moved(json.substr(at, comma - at)) + "," + moved(json.substr(comma + 1, end)));
  }
  json += R"(,"first":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})" + more + "}";
  while (json.size() % 8 != 2) json += ' ';
  const uint64_t length = json.size();
  std::string whole(reinterpret_cast<const char*>(&length), sizeof length);
  whole += json + bytes + (more.empty() ? "" : "22");
  EXPECT_EQ(bytes.size(), data + 1);
  const auto path = temporary.path() / "unaligned";
  base::throw_if_error(base::write_file_atomic(path, whole));
  return SafetensorsFile::open(path).or_throw();
}

TEST(Tensors, AtAnyByteOfAFileAreReadInEveryType) {
  const test::TemporaryFolder temporary;
  std::vector<TensorEntry> entries = {{"first", torch::zeros({1}, torch::kByte)}};
  std::vector<TensorEntry> saved;
  for (const auto type :
       {torch::kDouble, torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kInt, torch::kLong,
        torch::kByte, torch::kChar, torch::kBool, torch::kFloat8_e4m3fn, torch::kFloat8_e5m2}) {
    saved.push_back({c10::toString(type), torch::arange(6).reshape({2, 3}).to(type)});
    entries.push_back({saved.back().name, torch::zeros({2, 3}).to(type)});
  }
  const auto file = unaligned(temporary, saved);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(file.find("Double")->bytes.data()) % 2, 1u);
  const Status status = copy_into(file, entries);
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < saved.size(); ++i) {
    EXPECT_TRUE(
        torch::equal(saved[i].tensor.to(torch::kDouble), entries[i + 1].tensor.to(torch::kDouble)))
        << saved[i].name;
  }
}

TEST(Tensors, OfATypeThatIsNotReadAreRefusedByName) {
  const test::TemporaryFolder temporary;
  const auto file = unaligned(temporary, {{"a", torch::ones({2})}},
                              R"(,"scale":{"dtype":"U16","shape":[1],"data_offsets":[9,11]})");
  const std::vector<TensorEntry> wanted = {{"a", torch::zeros({2})},
                                           {"first", torch::zeros({1}, torch::kByte)},
                                           {"scale", torch::zeros({1})}};
  const Status status = copy_into(file, wanted);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("'scale' is U16 [1] in the file, a type that hanji does "
                                          "not read, and float32 [1] here"));
  EXPECT_THAT(copy_into(file, std::span(wanted).first(2)).message(),
              HasSubstr("'scale' (U16 [1]) is in the file and not here"));
}

TEST(Tensors, OfAnotherModelAreAllNamedAndNoneIsLoaded) {
  const test::TemporaryFolder temporary;
  const auto file = written(temporary, {{"linear.weight", torch::ones({5, 3})},
                                        {"linear.biass", torch::ones({4})},
                                        {"count", torch::ones({2}, torch::kLong)}});
  const SmallNetImpl net(4);
  const Status status = copy_into(file, state_of(net));
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_THAT(status.message(),
              HasSubstr("'linear.weight' is float32 [5, 3] in the file and float32 [4, 3] here"));
  EXPECT_THAT(status.message(),
              HasSubstr("'linear.bias' is missing (the nearest is 'linear.biass')"));
  EXPECT_THAT(status.message(), HasSubstr("'linear.biass' is in the file and not here"));
  EXPECT_TRUE(torch::equal(net.named_buffers()["count"], torch::zeros({2}, torch::kLong)));
}

TEST(ViewsOf, RefusesByNameWhatHasNoDenseBytes) {
  const auto message = [](const at::Tensor& tensor) {
    const Status status = views_of(std::vector<TensorEntry>{{"w", tensor}}).status();
    EXPECT_EQ(status.code(), Code::kUnsupported);
    return status.message();
  };
  EXPECT_THAT(message(torch::ones({2, 3}).t()), HasSubstr("'w' is not contiguous"));
  EXPECT_THAT(message(torch::ones({2, 3}).to_sparse()), HasSubstr("'w' is not dense"));
  EXPECT_THAT(message(torch::ones({2}, torch::kShort)), HasSubstr("'w' "));
  EXPECT_THAT(message(at::Tensor()), HasSubstr("'w' is undefined"));
}

}  // namespace
}  // namespace hanji::checkpoint
