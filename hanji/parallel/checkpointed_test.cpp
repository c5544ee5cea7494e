#include "hanji/parallel/checkpointed.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "hanji/base/status.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel {
namespace {

struct Block : torch::nn::Module {
  explicit Block(double probability = 0) : probability(probability) {
    first = register_module("first", torch::nn::Linear(6, 20));
    second = register_module("second", torch::nn::Linear(20, 6));
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(torch::arange(p.numel()).add(1).sin().view(p.sizes()));
  }
  at::Tensor forward(const at::Tensor& x) {
    ++num_calls;
    const at::Tensor inner = torch::tanh(first(x));
    last_inner = c10::weak_intrusive_ptr<c10::TensorImpl>(inner.getIntrusivePtr());
    return x + second(torch::dropout(inner, probability, true));
  }
  double probability;
  int num_calls = 0;
  c10::weak_intrusive_ptr<c10::TensorImpl> last_inner =
      c10::weak_intrusive_ptr<c10::TensorImpl>(c10::intrusive_ptr<c10::TensorImpl>());
  torch::nn::Linear first{nullptr}, second{nullptr};
};

at::Tensor input() { return torch::arange(12).cos().view({2, 6}).requires_grad_(); }

struct Outcome {
  at::Tensor output, input_gradient, random_after;
  std::vector<at::Tensor> gradients;
};

/// The block twice in a row, its parameters thus used twice, with or without checkpoints.
Outcome run(Block& block, bool with_checkpoints) {
  torch::manual_seed(7);
  const at::Tensor x = input();
  const auto once = [&](const at::Tensor& in) {
    return with_checkpoints
               ? checkpointed([&](const at::Tensor& y) { return block.forward(y); }, in)
               : block.forward(in);
  };
  Outcome result;
  result.output = once(once(x * 2));
  result.output.square().sum().backward();
  result.input_gradient = x.grad();
  for (const auto& p : block.parameters()) result.gradients.push_back(p.grad().clone());
  result.random_after = torch::rand({4});
  block.zero_grad();
  return result;
}

TEST(Checkpointed, GradientsAreBitEqualUnderDropout) {
  for (const double probability : {0.0, 0.4}) {
    Block block(probability);
    const Outcome plain = run(block, false);
    const Outcome kept = run(block, true);
    EXPECT_EQ(block.num_calls, 2 + 4);
    EXPECT_TRUE(at::equal(plain.output, kept.output));
    EXPECT_TRUE(at::equal(plain.input_gradient, kept.input_gradient));
    EXPECT_TRUE(at::equal(plain.random_after, kept.random_after)) << "the generator goes on";
    for (size_t i = 0; i < plain.gradients.size(); ++i) {
      EXPECT_TRUE(at::equal(plain.gradients[i], kept.gradients[i])) << i;
    }
  }
}

TEST(Checkpointed, KeepsNothingButInputsAndOutputs) {
  Block block;
  const at::Tensor plain = block.forward(input());
  EXPECT_FALSE(block.last_inner.expired());
  const at::Tensor kept =
      checkpointed([&](const at::Tensor& x) { return block.forward(x); }, input());
  EXPECT_TRUE(block.last_inner.expired());
  kept.sum().backward();
}

TEST(Checkpointed, TakesAndGivesSeveralTensors) {
  const at::Tensor scale = torch::ones({2, 6}).requires_grad_();
  const at::Tensor x = input(), indices = torch::tensor({1, 0});
  const auto both = [&](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0].index_select(0, in[1]) * scale, in[0].sum()};
  };
  const auto outputs = checkpointed_all(both, {x, indices});
  (outputs[0].sum() * 3).backward();  // the second output takes no part
  EXPECT_TRUE(at::equal(x.grad(), torch::full({2, 6}, 3.0F)));
  EXPECT_TRUE(at::allclose(scale.grad(), 3 * x.index_select(0, indices)));
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(checkpointed_all(both, {x, indices})[0].requires_grad());
}

TEST(Checkpointed, AnInputMayBeUndefined) {
  const auto scaled = [](const at::Tensor& x, const at::Tensor& none, const at::Tensor& y) {
    EXPECT_FALSE(none.defined());
    return x * y.sin();
  };
  const at::Tensor x = input(), y = input();
  checkpointed(scaled, x, at::Tensor(), y).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), y.detach().sin()));
  EXPECT_TRUE(at::allclose(y.grad(), x.detach() * y.detach().cos()));
}

TEST(Checkpointed, AFunctionThatChangesIsToldSo) {
  int calls = 0;
  const auto fn = [&](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>(++calls, in[0] * 2);
  };
  const at::Tensor output = checkpointed_all(fn, {input()})[0];
  EXPECT_THAT([&] { output.sum().backward(); },
              testing::ThrowsMessage<std::exception>(testing::HasSubstr("same twice")));
}

TEST(Checkpointed, GradientsMeetInDataParallelAsWithout) {
  for (const int64_t num_grains : {0, 4}) {
    test::run_ranks(2, [&](world::World& world) {
      std::vector<at::Tensor> expected;
      for (const bool with_checkpoints : {false, true}) {
        Block block;
        auto replicas =
            data_parallel(block, world.group(), {.bucket_bytes = 64, .num_grains = num_grains});
        for (int step = 0; step < 2; ++step) {
          block.zero_grad();
          const auto backward = [&](int64_t grain) {
            const at::Tensor x = input() * (1 + grain);
            const at::Tensor y =
                with_checkpoints
                    ? checkpointed([&](const at::Tensor& in) { return block.forward(in); }, x)
                    : block.forward(x);
            y.square().sum().backward();
          };
          if (num_grains == 0) backward(world.rank());
          for (int64_t i = replicas.grains().begin; i < replicas.grains().end; ++i) {
            replicas.grain(i);
            backward(i);
          }
        }
        for (size_t i = 0; i < block.parameters().size(); ++i) {
          const at::Tensor gradient = block.parameters()[i].grad().clone();
          if (!with_checkpoints) expected.push_back(gradient);
          EXPECT_TRUE(at::equal(gradient, expected[i])) << i;
        }
      }
    });
  }
}

}  // namespace
}  // namespace hanji::parallel
