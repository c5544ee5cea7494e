#include "hanji/checkpoint/module_file.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "hanji/checkpoint/internal/test_state.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

using internal::read_bytes;
using internal::write_bytes;
using testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width = 5) : convolution(1, 2, 3), norm(2), linear(2 * 16, width) {
    register_module("convolution", convolution);
    register_module("norm", norm);
    register_module("linear", linear);
    // A weight that does not lie in C order.
    convolution->weight.set_data(convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return linear(torch::relu(norm(convolution(x))).flatten(1));
  }
  torch::nn::Conv2d convolution;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear linear;
};

void train(NetImpl& net, torch::optim::Optimizer& optimizer, int first, int count) {
  for (int step = first; step < first + count; ++step) {
    torch::manual_seed(step);
    optimizer.zero_grad();
    net.forward(torch::randn({4, 1, 6, 6})).square().mean().backward();
    optimizer.step();
  }
}

bool same(const NetImpl& a, const NetImpl& b) {
  const auto of_b = b.named_parameters();
  for (const auto& item : a.named_parameters()) {
    if (!torch::equal(item.value(), of_b[item.key()])) return false;
  }
  return torch::equal(a.norm->running_var, b.norm->running_var);
}

template <class Make>
void expect_exact(const Make& make) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "net.safetensors";
  NetImpl whole;
  auto optimizer = make(whole);
  train(whole, *optimizer, 0, 3);
  optimizer->param_groups()[0].options().set_lr(0.03);
  const Status saved = save(path, whole, *optimizer);
  ASSERT_TRUE(saved.ok()) << saved.message();
  train(whole, *optimizer, 3, 3);

  torch::manual_seed(99);
  NetImpl loaded;
  auto other = make(loaded);
  train(loaded, *other, 50, 2);  // A state that must go.
  const Status status = load(path, loaded, *other);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(other->param_groups()[0].options().get_lr(), 0.03);
  train(loaded, *other, 3, 3);
  EXPECT_TRUE(same(loaded, whole));
}

TEST(ModuleFile, AdamWGoesOnExactly) {
  expect_exact(
      [](NetImpl& net) { return std::make_unique<torch::optim::AdamW>(net.parameters(), 0.01); });
}

TEST(ModuleFile, AdamWithAmsgradGoesOnExactly) {
  expect_exact([](NetImpl& net) {
    return std::make_unique<torch::optim::Adam>(net.parameters(),
                                                torch::optim::AdamOptions(0.01).amsgrad(true));
  });
}

TEST(ModuleFile, SgdWithMomentumGoesOnExactly) {
  expect_exact([](NetImpl& net) {
    return std::make_unique<torch::optim::SGD>(net.parameters(),
                                               torch::optim::SGDOptions(0.01).momentum(0.9));
  });
}

class ModuleFileFaults : public testing::Test {
 protected:
  ModuleFileFaults() {
    train(net_, optimizer_, 0, 1);
    const Status status = save(path(), net_, optimizer_);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  std::filesystem::path path() const { return folder_.path() / "net.safetensors"; }
  test::TemporaryFolder folder_{internal::folder_in_memory()};
  NetImpl net_;
  torch::optim::AdamW optimizer_{net_.parameters(), 0.01};
};

TEST_F(ModuleFileFaults, ANewOptimizerHasAStateToo) {
  NetImpl fresh;
  const torch::optim::AdamW never_stepped(fresh.parameters(), 0.5);
  ASSERT_TRUE(save(path(), fresh, never_stepped).ok());
  ASSERT_TRUE(load(path(), net_, optimizer_).ok());
  EXPECT_TRUE(optimizer_.state().empty());
}

TEST_F(ModuleFileFaults, TheModuleAloneIsLoadedFromAFileWithBoth) {
  NetImpl other;
  EXPECT_TRUE(load(path(), other).ok());
  EXPECT_TRUE(same(other, net_));
}

TEST_F(ModuleFileFaults, EveryFlippedBitIsSeenAndNothingIsLoaded) {
  const std::string good = read_bytes(path());
  NetImpl other;
  NetImpl untouched;
  ASSERT_TRUE(load(path(), untouched).ok());
  ASSERT_TRUE(load(path(), other).ok());
  for (size_t byte = 0; byte < good.size(); byte += 5) {
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ 1 << byte % 8);
    write_bytes(path(), bad);
    EXPECT_FALSE(load(path(), other).ok()) << "byte " << byte;
  }
  EXPECT_TRUE(same(other, untouched));
}

TEST_F(ModuleFileFaults, EveryDifferenceIsListedAtOnce) {
  NetImpl wider(6);
  torch::optim::AdamW optimizer(wider.parameters(), 0.01);
  const Status status = load(path(), wider, optimizer);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("'linear.weight' is float32 [5, 32] in the file"));
  EXPECT_THAT(status.message(), HasSubstr("'linear.bias' is float32 [5] in the file"));
  EXPECT_THAT(status.message(), HasSubstr("'optimizer.exp_avg.linear.bias'"));
  EXPECT_TRUE(optimizer.state().empty());
}

TEST_F(ModuleFileFaults, AnotherOptimizerIsRefused) {
  torch::optim::SGD sgd(net_.parameters(), 0.1);
  EXPECT_THAT(load(path(), net_, sgd).message(), HasSubstr("the AdamW optimizer, not of SGD"));
  torch::optim::RMSprop other(net_.parameters());
  EXPECT_EQ(save(path(), net_, other).code(), Code::kUnsupported);
  ASSERT_TRUE(save(path(), net_).ok());
  EXPECT_THAT(load(path(), net_, optimizer_).message(), HasSubstr("no optimizer"));
}

TEST_F(ModuleFileFaults, ARefusedSaveLeavesTheOldFile) {
  const std::string good = read_bytes(path());
  net_.register_buffer("flags", torch::ones({2}, torch::kShort));
  EXPECT_THAT(save(path(), net_).message(), HasSubstr("'flags'"));
  torch::optim::AdamW foreign(NetImpl().parameters(), 0.1);
  EXPECT_EQ(save(path(), NetImpl(), foreign).code(), Code::kInvalidArgument);
  EXPECT_EQ(read_bytes(path()), good);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
  EXPECT_EQ(load(folder_.path() / "none", net_).code(), Code::kNotFound);
}

TEST_F(ModuleFileFaults, ErrorsNameTheFileThatWasAskedForAlone) {
  const auto folder = folder_.path() / "folder";
  std::filesystem::create_directories(folder / "x");
  for (const auto& wrong : {folder, folder_.path() / "none" / "x"}) {
    const Status status = save(wrong, net_);
    EXPECT_THAT(status.message(), HasSubstr(wrong.native() + ": "));
    EXPECT_THAT(status.message(), testing::Not(HasSubstr(".saving")));
  }
}

}  // namespace
}  // namespace hanji::checkpoint
