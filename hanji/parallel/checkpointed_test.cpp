#include "hanji/parallel/checkpointed.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "hanji/base/status.h"
#include "hanji/parallel/checkpoint_budget.h"
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
    last_inner = inner.storage().getWeakStorageImpl();
    return x + second(torch::dropout(inner, probability, true));
  }
  double probability;
  int num_calls = 0;
  c10::weak_intrusive_ptr<c10::StorageImpl> last_inner =
      c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>());
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

/// Attention with dropout over three projections of one input, and a product with itself.
struct Attention : torch::nn::Module {
  Attention() {
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(torch::arange(p.numel()).add(1).sin().view(p.sizes()));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor inner = torch::layer_norm(x, {8});
    const auto heads = [&](const at::Tensor& of) { return of.view({2, 3, 2, 4}).transpose(1, 2); };
    products.push_back(query(inner.view({6, 8})));
    products.push_back(key(inner.view({6, 8})));
    const at::Tensor q = heads(products.end()[-2]), k = heads(products.back());
    const at::Tensor v = heads(value(inner));  // adds its bias in place, to a view of the product
    const at::Tensor mixed = torch::dropout(at::scaled_dot_product_attention(q, k, v), .3, true);
    const at::Tensor out = mixed.transpose(1, 2).reshape({6, 8});
    return x + torch::gelu(out.mm(out.t()).mm(out)).view(x.sizes()) * 2;
  }
  std::vector<at::Tensor> products;
  torch::nn::Linear query = register_module("query", torch::nn::Linear(8, 8));
  torch::nn::Linear key = register_module("key", torch::nn::Linear(8, 8));
  torch::nn::Linear value = register_module("value", torch::nn::Linear(8, 8));
};

/// Output, gradients of the input and of the parameters, and what is drawn afterwards.
std::vector<at::Tensor> train_attention(const lens::KeepRule& keeps, bool with_checkpoints) {
  torch::manual_seed(5);
  Attention block;
  const at::Tensor x = torch::arange(48, torch::kFloat).cos().view({2, 3, 8}).requires_grad_();
  at::Tensor y = x * 1;
  for (int i = 0; i < 2; ++i) {
    const auto fn = [&](const at::Tensor& in) { return block.forward(in); };
    y = with_checkpoints ? checkpointed_keeping(keeps, fn, y) : fn(y);
  }
  std::vector<void*> places;
  for (const at::Tensor& product : std::exchange(block.products, {})) {
    places.push_back(product.data_ptr());
  }
  y.square().sum().backward({}, /*retain_graph=*/true);
  y.square().sum().backward();
  if (with_checkpoints) {
    size_t num_same = 0;  // backward goes from the last call to the first
    for (size_t i = 0; i < 4; ++i) num_same += block.products[i].data_ptr() == places[(i + 2) % 4];
    const bool keeps_them = keeps && keeps("aten::addmm");
    EXPECT_TRUE(!keeps_them || num_same == 4) << num_same << " of 4 were kept";
  }
  std::vector<at::Tensor> found{y.detach(), x.grad(), torch::rand({3})};
  for (const auto& p : block.parameters()) found.push_back(p.grad());
  return found;
}

TEST(Checkpointed, KeptResultsAreNotMadeAgainAndTheBitsStay) {
  const auto expected = train_attention({}, false);
  const std::vector<lens::KeepRule> rules{
      {},
      lens::keep_products(),
      [](const std::string& name) { return name == "aten::addmm"; },
      [](const std::string& name) { return name == "aten::bernoulli_"; },  // in place: made again
      [](const std::string&) { return true; }};
  for (size_t r = 0; r < rules.size(); ++r) {
    const auto found = train_attention(rules[r], true);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(found[i], expected[i])) << r << " " << i;
    }
  }
}

TEST(Checkpointed, KeptResultsAreAllThatIsKept) {
  Block block;
  const auto fn = [&](const at::Tensor& x) { return block.forward(x); };
  const at::Tensor none =
      checkpointed_keeping([](const std::string&) { return false; }, fn, input());
  EXPECT_TRUE(block.last_inner.expired());
  const at::Tensor products = checkpointed_keeping(lens::keep_products(), fn, input());
  EXPECT_TRUE(block.last_inner.expired()) << "the second product has saved it";
  const at::Tensor tanhs = checkpointed_keeping(
      [](const std::string& name) { return name == "aten::tanh"; }, fn, input());
  (none + products + tanhs).sum().backward();
}

TEST(Checkpointed, OtherOperationsWhereResultsWereKeptAreNamed) {
  bool first = true;
  const auto fn = [&](const at::Tensor& x) {
    return std::exchange(first, false) ? x.mm(x.t()) : x.sin().mm(x.t());
  };
  const at::Tensor output = checkpointed_keeping(lens::keep_products(), fn, input());
  EXPECT_THAT([&] { output.sum().backward(); },
              testing::ThrowsMessage<std::exception>(testing::HasSubstr("was aten::mm")));
}

struct WideBlock : torch::nn::Module {
  explicit WideBlock(int64_t width)
      : first(register_module("first", torch::nn::Linear(10, width))),
        second(register_module("second", torch::nn::Linear(width, 10))) {}
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first, second;
};

/// Blocks of different sizes, called one after the other.
struct Stack : torch::nn::Module {
  Stack() {
    for (const int64_t width : {30, 200, 60, 100}) {
      blocks.push_back(register_module("block" + std::to_string(blocks.size()),
                                       std::make_shared<WideBlock>(width)));
    }
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_(torch::arange(p.numel()).add(1).sin().view(p.sizes()));
  }
  at::Tensor forward(at::Tensor x, const Checkpoints& checkpoints) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      x = checkpoints.call(
          i, [block = blocks[i]](const at::Tensor& in) { return block->forward(in); }, x);
    }
    return x.square().sum();
  }
  std::vector<std::shared_ptr<WideBlock>> blocks;
};

TEST(CheckpointsWithin, ABudgetIsKeptAndTheBitsStay) {
  Stack stack;
  const at::Tensor x = torch::arange(160, torch::kFloat).cos().view({16, 10});
  const auto train = [&](const Checkpoints& checkpoints) {
    stack.zero_grad();
    return lens::profile(stack, [&] { stack.forward(x, checkpoints).backward(); });
  };
  const lens::Profile plain = train({});
  const at::Tensor expected = stack.parameters()[0].grad().clone();
  const std::vector<std::string> names{"block0", "block1", "block2", "block3"};
  const auto input_bytes = static_cast<int64_t>(x.nbytes());
  for (const int64_t budget : {plain.kept_bytes(), plain.kept_bytes() * 3 / 4}) {
    const Checkpoints chosen = checkpoints_within(budget, plain, names, input_bytes);
    const lens::Profile found = train(chosen);
    EXPECT_LE(found.kept_bytes(), budget);
    EXPECT_EQ(chosen.choice.flops == 0, budget == plain.kept_bytes());
    EXPECT_TRUE(at::equal(stack.parameters()[0].grad(), expected));
  }
  EXPECT_THAT([&] { checkpoints_within(1000, plain, names, input_bytes); },
              testing::ThrowsMessage<std::exception>(testing::HasSubstr("are not enough")));
  EXPECT_THAT([&] { checkpoints_within(1000, plain, {"block7"}, input_bytes); },
              testing::ThrowsMessage<std::exception>(testing::HasSubstr("block7")));
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
