// What replaces autograd's default engine gives it back.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "hanji/lens/saved_tensors.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/offload/activation_store.h"
#include "hanji/parallel/test_net.h"
#include "hanji/test/run_threads.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::parallel {
namespace {

using test_net::refusal;
using testing::HasSubstr;
using torch::autograd::Engine;

const Engine* default_engine() { return &Engine::get_default_engine(); }

struct OtherEngine : Engine {
  static Engine& get() {
    static auto* engine = new OtherEngine;
    return *engine;
  }
};

class AutogradEngine : public testing::Test {
 protected:
  ~AutogradEngine() override {
    EXPECT_EQ(default_engine(), original_);
    torch::autograd::set_default_engine_stub(&Engine::get_base_engine);
  }
  ActivationStore store() const {
    return ActivationStore({.folder = folder_.path(), .smallest_bytes = 1});
  }
  at::Tensor leaf() const {
    return torch::arange(4096, torch::kFloat).sin().view({64, 64}).requires_grad_();
  }
  static at::Tensor loss(const at::Tensor& x) { return torch::tanh(x.mm(x)).square().sum(); }
  static at::Tensor gradient(const at::Tensor& x, const at::Tensor& of) {
    of.backward();
    return x.grad();
  }
  at::Tensor expected() const {
    const at::Tensor x = leaf();
    return gradient(x, loss(x));
  }

  const Engine* const original_ = default_engine();
  test::TemporaryFolder folder_;
};

TEST_F(AutogradEngine, IsAnotherOneOnlyWithinTheScopes) {
  EXPECT_EQ(original_, &Engine::get_base_engine());
  ActivationStore outer = store(), inner = store();
  for (int i = 0; i < 2; ++i) {
    const auto first = outer.offload();
    EXPECT_NE(default_engine(), original_);
    {
      const auto second = inner.offload();
      EXPECT_NE(default_engine(), original_);
    }
    EXPECT_NE(default_engine(), original_) << "the outer scope is open";
    const at::Tensor x = leaf();
    EXPECT_TRUE(at::equal(gradient(x, loss(x)), expected()));
  }
  EXPECT_EQ(default_engine(), original_);
}

TEST_F(AutogradEngine, IsItsOwnAgainAfterTheScopesOfSeveralThreads) {
  const at::Tensor right = expected();
  test::run_threads(4, [&](int thread) {
    ActivationStore mine = store();
    for (int i = 0; i < 50; ++i) {
      const at::Tensor x = leaf();
      at::Tensor sum;
      if (thread > 0) {
        const auto scope = mine.offload();
        sum = loss(x);
        EXPECT_GT(mine.stored_bytes(), 0);
        if (thread == 1) sum.backward();
      } else {
        sum = loss(x);  // beside the scopes of others
      }
      if (thread != 1) sum.backward();
      EXPECT_TRUE(at::equal(x.grad(), right)) << "thread " << thread;
    }
    EXPECT_EQ(mine.stored_bytes(), 0);
  });
  EXPECT_EQ(default_engine(), original_);
}

TEST_F(AutogradEngine, IsItsOwnAgainAfterCheckpointsThatKeepResults) {
  const auto step = [](const at::Tensor& x) { return torch::tanh(x.mm(x)); };
  const at::Tensor x = leaf();
  const at::Tensor y = checkpointed_keeping(lens::keep_products(), step, x);
  EXPECT_EQ(default_engine(), original_) << "after the forward";
  EXPECT_TRUE(at::equal(gradient(x, y.square().sum()), expected()));
  const auto fails = [](const at::Tensor& x) {
    const at::Tensor product = x.mm(x);
    if (product.dim() == 2) throw std::runtime_error("in the middle");
    return product;
  };
  EXPECT_THAT(refusal([&] { checkpointed_keeping(lens::keep_products(), fails, leaf()); }),
              HasSubstr("in the middle"));
}

TEST_F(AutogradEngine, IsNotNeededByAGraphThatOutlivesScopeAndStore) {
  const at::Tensor x = leaf();
  at::Tensor sum;
  {
    ActivationStore short_lived = store();
    const auto scope = short_lived.offload();
    sum = loss(x);
  }
  EXPECT_EQ(default_engine(), original_);
  std::thread([&] { sum.backward(); }).join();
  EXPECT_TRUE(at::equal(x.grad(), expected()));
}

TEST_F(AutogradEngine, OfSomebodyElseIsRefusedAndLeftAlone) {
  ActivationStore mine = store();
  torch::autograd::set_default_engine_stub(&OtherEngine::get);
  EXPECT_THAT(refusal([&] { const auto scope = mine.offload(); }), HasSubstr("not libtorch's own"));
  EXPECT_EQ(default_engine(), &OtherEngine::get());
  torch::autograd::set_default_engine_stub(&Engine::get_base_engine);
  {
    const auto scope = mine.offload();
    torch::autograd::set_default_engine_stub(&OtherEngine::get);
    EXPECT_THAT(refusal([&] { const auto inner = mine.offload(); }),
                HasSubstr("not libtorch's own"));
  }
  EXPECT_EQ(default_engine(), &OtherEngine::get()) << "it came later, and is not ours to remove";
  torch::autograd::set_default_engine_stub(&Engine::get_base_engine);
}

}  // namespace
}  // namespace hanji::parallel
