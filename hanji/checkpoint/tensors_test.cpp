#include "hanji/checkpoint/tensors.h"

#include <gmock/gmock.h>
#include <torch/nn.h>

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
