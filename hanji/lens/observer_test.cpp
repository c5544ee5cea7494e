#include "hanji/lens/observer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/library.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <functional>
#include <thread>

#include "hanji/base/status.h"
#include "hanji/lens/cost.h"
#include "hanji/lens/internal/interceptor.h"

namespace hanji::lens {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Notes : Observer {
  std::vector<std::string> names;
  double flops = 0;
  int64_t read = 0, written = 0;
  std::function<void(const Operation&)> first = [](const Operation&) {};
  std::function<void(const Operation&)> then = [](const Operation&) {};

  void before(const Operation& operation) override {
    names.push_back(operation.name());
    flops += lens::flops(operation);
    read += moved_bytes(operation);
    first(operation);
  }
  void after(const Operation& operation) override {
    written += moved_bytes(operation);
    then(operation);
  }
};

/// Flops of what `run` asks for.
double flops_of(const std::function<void()>& run) {
  Notes notes;
  const Scope scope(notes);
  run();
  return notes.flops;
}

TEST(Lens, SeesAnUnmodifiedModule) {
  torch::nn::Linear linear(3, 4);
  const auto x = at::ones({2, 3});
  const auto expected = linear(x);
  Notes notes;
  at::Tensor y;
  {
    const Scope scope(notes);
    y = linear(x);
  }
  at::add(x, x);
  EXPECT_THAT(notes.names, ElementsAre("aten::t", "aten::addmm"));
  EXPECT_EQ(notes.flops, 2 * 2 * 3 * 4);
  // t() is a view; addmm reads bias, x and weight, and writes y.
  EXPECT_EQ(notes.read, 4 * (4 + 2 * 3 + 3 * 4));
  EXPECT_EQ(notes.written, 4 * 2 * 4);
  EXPECT_TRUE(at::equal(y, expected));
}

TEST(Lens, SeesArgumentsBeforeAndResultsAfter) {
  Notes notes;
  std::vector<size_t> counts;
  at::Tensor result;
  notes.first = [&](const Operation& operation) {
    int tensors = 0;
    operation.for_each_input([&](const at::Tensor&) { ++tensors; });
    EXPECT_EQ(tensors, 3);  // also those within a list
    EXPECT_TRUE(operation.results().empty());
  };
  notes.then = [&](const Operation& operation) {
    EXPECT_TRUE(operation.arguments().empty());
    operation.for_each_output([&](const at::Tensor& tensor) { result = tensor; });
  };
  const auto x = at::ones({2});
  at::Tensor y;
  {
    const Scope scope(notes);
    y = at::cat({x, x, x});
  }
  EXPECT_TRUE(y.is_same(result));
}

TEST(Lens, CallbacksMayComputeAndAreNotSeen) {
  Notes notes;
  notes.first = [](const Operation& operation) {
    operation.for_each_input([](const at::Tensor& tensor) { tensor.fill_(7); });
  };
  auto x = at::zeros({2});
  const Scope scope(notes);
  const auto y = at::neg(x);
  EXPECT_THAT(notes.names, ElementsAre("aten::neg"));
  EXPECT_EQ(y.data_ptr<float>()[1], -7);
}

TEST(Lens, BackwardWithinTheScopeIsSeenAndGradientsCanBeHooked) {
  torch::nn::Linear linear(3, 4);
  Notes notes;
  int hooked = 0;
  notes.then = [&](const Operation& operation) {
    if (operation.schema().name() != "aten::addmm") return;
    operation.for_each_output([&](const at::Tensor& tensor) {
      tensor.register_hook([&](const at::Tensor&) { ++hooked; });
    });
  };
  const auto x = at::ones({2, 3});
  const Scope scope(notes);
  linear(x).sum().backward();
  EXPECT_THAT(notes.names, Contains("aten::mm"));
  // The input needs no gradient: one product of the forward's size for the weight's.
  EXPECT_EQ(notes.flops, 2 * (2 * 2 * 3 * 4));
  EXPECT_EQ(hooked, 1);
  EXPECT_TRUE(linear->weight.grad().defined());
}

TEST(Lens, ScopesNestAndOverlap) {
  std::vector<std::string> order;
  Notes a, b;
  a.first = [&](const Operation&) { order.push_back("a"); };
  b.first = [&](const Operation&) { order.push_back("b"); };
  a.then = [&](const Operation&) { order.push_back("after a"); };
  b.then = [&](const Operation&) { order.push_back("after b"); };
  const auto x = at::ones({1});
  auto outer = std::make_unique<Scope>(a);
  auto inner = std::make_unique<Scope>(b);
  at::neg(x);
  EXPECT_THAT(order, ElementsAre("a", "b", "after b", "after a"));
  outer.reset();  // not the one opened last
  at::abs(x);
  EXPECT_THAT(a.names, ElementsAre("aten::neg"));
  EXPECT_THAT(b.names, ElementsAre("aten::neg", "aten::abs"));
  {
    const Pause pause;
    at::neg(x);
  }
  inner.reset();
  at::neg(x);
  EXPECT_EQ(b.names.size(), 2u);
}

TEST(Lens, OnlyTheThreadOfTheScope) {
  Notes notes;
  const Scope scope(notes);
  std::thread([] { at::neg(at::ones({1})); }).join();
  EXPECT_THAT(notes.names, IsEmpty());
}

TEST(Lens, WhatAnObserverThrowsReachesTheCallerAndTheScopeGoesOn) {
  Notes notes;
  notes.first = [](const Operation& operation) {
    if (operation.name() == "aten::neg") throw Error(base::timeout("rank 3 did not come"));
  };
  const auto x = at::ones({1});
  const Scope scope(notes);
  EXPECT_THAT([&] { at::neg(x); }, testing::ThrowsMessage<Error>(HasSubstr("rank 3")));
  EXPECT_THROW(at::mm(x, x), c10::Error);  // libtorch's own
  at::abs(x);
  EXPECT_THAT(notes.names, ElementsAre("aten::neg", "aten::mm", "aten::abs"));
}

TEST(Lens, AnInterceptorMakesTheCall) {
  struct Doubles : Interceptor {
    void call(const c10::OperatorHandle& handle, c10::DispatchKeySet,
              std::vector<c10::IValue>& stack) override {
      handle.callBoxed(stack);
      stack.back() = stack.back().toTensor() * 2;
    }
  } doubles;
  const auto x = at::ones({1});
  const InterceptorScope scope(doubles);
  EXPECT_EQ(at::neg(x).data_ptr<float>()[0], -2);
}

TEST(Lens, AnObserverMakesAnOperationInItsStead) {
  struct Absolute : Notes {
    std::optional<at::Tensor> replace(const Operation& operation) override {
      if (operation.name() != "aten::neg") return std::nullopt;
      return at::abs(operation.arguments()[0].toTensor());
    }
  } absolute;
  std::vector<double> after;
  absolute.then = [&](const Operation& operation) {
    if (operation.name() != "aten::neg" && operation.name() != "aten::mul") return;
    after.push_back(operation.results()[0].toTensor().item<double>());
  };
  const auto x = at::full({1}, -3.0).requires_grad_();
  const Scope scope(absolute);
  const auto y = at::neg(x);
  EXPECT_EQ(y.item<double>(), 3);
  y.backward();
  EXPECT_EQ(x.grad().item<double>(), -1) << "of what was made";
  EXPECT_THAT(absolute.names, testing::Not(Contains("aten::abs")));
  EXPECT_EQ(at::mul(x, x).item<double>(), 9);
  EXPECT_THAT(after, testing::IsSupersetOf({3.0, 9.0}));
}

TEST(Cost, ProductsConvolutionsAttentionAndRecurrence) {
  const auto m = [](at::IntArrayRef sizes) { return at::ones(sizes); };
  const auto a = m({2, 3}), b = m({3, 5});
  EXPECT_EQ(flops_of([&] { at::mm(a, b); }), 2 * 2 * 3 * 5);
  const auto batch = m({7, 2, 3});
  EXPECT_EQ(flops_of([&] { at::matmul(batch, b); }), 7 * 2 * 2 * 3 * 5);
  EXPECT_EQ(flops_of([&] { at::linear(batch, b.t().contiguous()); }), 7 * 2 * 2 * 3 * 5);
  const auto other = m({7, 3, 4});
  EXPECT_EQ(flops_of([&] { at::bmm(batch, other); }), 7 * 2 * 2 * 3 * 4);
  EXPECT_EQ(flops_of([&] { at::einsum("bij,bjk->bik", {batch, other}); }), 7 * 2 * 2 * 3 * 4);
  EXPECT_EQ(flops_of([&] { at::add(a, a); }), 0);
  const auto q = m({2, 3, 16, 8}), k = m({2, 3, 24, 8});
  EXPECT_EQ(flops_of([&] { at::scaled_dot_product_attention(q, k, k); }), 4 * 2 * 3 * 16 * 24 * 8);
}

TEST(Cost, ConvolutionsForwardAndBackward) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(4, 6, 3).stride(2).padding(1).groups(2));
  const auto x = at::ones({5, 4, 9, 7}).requires_grad_();
  const double once = 2.0 * 5 * (5 * 4) * 6 * (4 / 2) * 9;  // outputs of 5 x 4 pixels
  EXPECT_EQ(flops_of([&] { conv(x); }), once);
  EXPECT_EQ(flops_of([&] { conv(x).sum().backward(); }), 3 * once);
  torch::nn::ConvTranspose1d up(torch::nn::ConvTranspose1dOptions(4, 6, 3));
  EXPECT_EQ(flops_of([&] { up(at::ones({2, 4, 10})); }), 2.0 * 2 * 4 * 10 * 6 * 3);
}

TEST(Cost, AnLstmCountsItsWeightsPerElement) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2));
  const double weights = 16 * 3 + 16 * 4 + 16 * 4 + 16 * 4;
  EXPECT_EQ(flops_of([&] { lstm(at::ones({5, 2, 3})); }), 2 * (5 * 2) * weights);
}

// In a process of its own, before ours is registered.
TEST(LensDeathTest, ASecondLibraryOnTheKeyIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto collide = [] {
    torch::Library theirs(torch::Library::IMPL, "_", c10::DispatchKey::DeferredInit, __FILE__,
                          __LINE__);
    theirs.fallback(torch::CppFunction::makeFallthrough());
    try {
      Notes notes;
      const Scope scope(notes);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(error.code() == Code::kUnsupported ? 3 : 4);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(collide(), testing::ExitedWithCode(3), "another library of this process");
}

}  // namespace
}  // namespace hanji::lens
