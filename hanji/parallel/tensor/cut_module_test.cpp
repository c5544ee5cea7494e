#include "hanji/parallel/tensor/cut_module.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <functional>

#include "hanji/base/status.h"
#include "hanji/lens/observer.h"
#include "hanji/parallel/checkpointed.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/tensor/embedding.h"
#include "hanji/parallel/tensor/linear.h"
#include "hanji/parallel/tensor/regions.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel::tensor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using enum ModuleCut;

// Sizes that few degrees divide.
constexpr int64_t kTable = 13, kOuter = 6, kInner = 10, kClasses = 7;

/// As a user writes it: a gated MLP of three dimensions, and one of two without biases.
struct UserNet : torch::nn::Module {
  UserNet()
      : table(register_module("table", torch::nn::Embedding(kTable, kOuter))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kOuter})))),
        gate(register_module("gate", Linear(kOuter, kInner))),
        up(register_module("up", Linear(kOuter, kInner))),
        down(register_module("down", Linear(kInner, kOuter))),
        fc(register_module("fc", Linear(LinearOptions(kOuter, kInner).bias(false)))),
        out(register_module("out", Linear(kInner, kOuter))),
        head(register_module("head", Linear(kOuter, kClasses))),
        dropout(register_module("dropout", torch::nn::Dropout(0.5))) {
    int64_t seed = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) {
      const auto index = at::arange(p.numel(), at::kDouble) + 100 * seed++;
      p.set_data((index.sin() * 0.3).view(p.sizes()));
    }
  }

  at::Tensor block(const at::Tensor& x) {
    const auto h = norm(x);
    return x + down(torch::silu(gate(h)) * up(h));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = around(table(tokens));
    const at::Tensor rows = x.view({-1, kOuter});
    return head((rows + out(between(fc(rows)))).view_as(x));
  }

  std::function<at::Tensor(const at::Tensor&)> around = [this](const at::Tensor& x) {
    return block(x);
  };
  std::function<at::Tensor(const at::Tensor&)> between = [](const at::Tensor& x) {
    return torch::gelu(x, "tanh").mul_(2);
  };
  torch::nn::Embedding table;
  torch::nn::LayerNorm norm;
  Linear gate, up, down, fc, out, head;
  torch::nn::Dropout dropout;
};

ModuleCuts all_cuts() {
  return {{"table", kRow}, {"gate", kColumn}, {"up", kColumn},    {"down", kRow},
          {"fc", kColumn}, {"out", kRow},     {"head", kGathered}};
}

at::Tensor user_tokens(int step = 0) {
  return (at::arange(12, at::kLong) * 5 + step).remainder(kTable).view({3, 4});
}

at::Tensor user_loss(const at::Tensor& y) { return (y.square() + y).sin().sum(); }

void step_once(UserNet& net, int step) {
  user_loss(net.forward(user_tokens(step))).backward();
  const at::NoGradGuard no_grad;
  for (at::Tensor& p : net.parameters()) {
    p.sub_(p.grad(), 1e-3);
    p.mutable_grad().reset();
  }
}

/// What a rank that has cut the module should have.
at::Tensor part_here(const layout::Cut& cut, const std::string& name, const at::Tensor& whole) {
  const auto placement = layout::placement_of(cut.placements, name).or_throw();
  return part_of(whole, placement, cut.index, cut.degree);
}

double apart(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CutModule, HasTheOutputAndGradientsOfTheModule) {
  for (const int degree : {2, 3, 4}) {
    UserNet alone;
    const auto expected = alone.forward(user_tokens());
    user_loss(expected).backward();
    test::run_ranks(degree, [&](world::World& world) {
      UserNet net;
      const CutModule cut(net, world.group(), all_cuts());
      const auto y = net.forward(user_tokens());
      EXPECT_LT(apart(y.detach(), expected.detach()), 1e-12);
      user_loss(y).backward();
      for (const auto& item : net.named_parameters()) {
        const at::Tensor whole = alone.named_parameters()[item.key()].grad();
        EXPECT_LT(apart(item.value().grad(), part_here(cut.cut(), item.key(), whole)), 1e-12)
            << item.key() << ", rank " << world.rank() << " of " << degree;
      }
    });
  }
}

TEST(CutModule, TrainsAsTheModule) {
  UserNet alone;
  for (int step = 0; step < 10; ++step) step_once(alone, step);
  test::run_ranks(3, [&](world::World& world) {
    UserNet net;
    const CutModule cut(net, world.group(), all_cuts());
    for (int step = 0; step < 10; ++step) step_once(net, step);
    for (const auto& item : net.named_parameters()) {
      const at::Tensor whole = alone.named_parameters()[item.key()].detach();
      EXPECT_LT(apart(item.value().detach(), part_here(cut.cut(), item.key(), whole)), 1e-12)
          << item.key();
    }
    const at::NoGradGuard no_grad;  // an evaluation
    EXPECT_LT(apart(net.forward(user_tokens()), alone.forward(user_tokens())), 1e-12);
  });
}

TEST(CutModule, ClipsByTheNormOfAllPartsAndOnceOfWhatIsWhole) {
  constexpr double kMaxNorm = 0.5;
  UserNet alone;
  user_loss(alone.forward(user_tokens())).backward();
  const double expected = clip_grad_norm(alone.parameters(), kMaxNorm);
  ASSERT_GT(expected, 2 * kMaxNorm);
  for (const int degree : {1, 2, 3}) {
    test::run_ranks(degree, [&](world::World& world) {
      UserNet net;
      const CutModule cut(net, world.group(), all_cuts());
      user_loss(net.forward(user_tokens())).backward();
      const double norm = cut.clip_grad_norm(kMaxNorm);
      EXPECT_NEAR(norm, expected, degree == 1 ? 0 : 1e-12 * expected);
      for (const auto& item : net.named_parameters()) {
        const at::Tensor whole = alone.named_parameters()[item.key()].grad();
        EXPECT_LT(apart(item.value().grad(), part_here(cut.cut(), item.key(), whole)), 1e-12)
            << item.key() << ", rank " << world.rank() << " of " << degree;
      }
    });
  }
}

TEST(CutModule, ClipsWhatHasLearnedToLearnAfterTheCut) {
  UserNet alone;
  user_loss(alone.forward(user_tokens())).backward();
  const double expected = clip_grad_norm(alone.parameters(), 0);
  test::run_ranks(2, [&](world::World& world) {
    UserNet net;
    for (auto& p : {net.fc->weight, net.norm->weight}) p.set_requires_grad(false);
    const CutModule cut(net, world.group(), all_cuts());
    for (auto& p : {net.fc->weight, net.norm->weight}) p.set_requires_grad(true);
    user_loss(net.forward(user_tokens())).backward();
    EXPECT_NEAR(cut.clip_grad_norm(0), expected, 1e-12 * expected);
  });
}

TEST(CutModule, ClipsNothingWhereAnyPartIsNotFinite) {
  test::run_ranks(2, [](world::World& world) {
    UserNet net;
    const CutModule cut(net, world.group(), all_cuts());
    user_loss(net.forward(user_tokens())).backward();
    if (world.rank() == 1) net.fc->weight.mutable_grad()[0][0] = std::nan("");
    const at::Tensor before = net.norm->weight.grad().clone();
    EXPECT_TRUE(std::isnan(cut.clip_grad_norm(0.1)));
    EXPECT_TRUE(at::equal(net.norm->weight.grad(), before));
  });
}

TEST(CutModule, IsMadeOfTheParts) {
  test::run_ranks(2, [](world::World& world) {
    const Axis axis(world.group());
    UserNet net;
    const CutModule cut(net, world.group(), all_cuts());
    const auto x = at::arange(4 * kOuter, at::kDouble).cos().view({4, kOuter}).requires_grad_();
    const auto other = x.detach().clone().requires_grad_();
    const auto y = net.out(torch::gelu(net.fc(x)));
    const Parameter<Sharded<0>> fc{{net.fc->weight, {}}};
    const Parameter<Sharded<1>> out{{net.out->weight, {}}};
    at::Tensor explicitly;
    {
      const lens::Pause pause;
      const auto columns = column_linear(enter(Typed<Replicated>(other), axis), fc);
      const Typed<Features> inner(at::gelu(columns.value()));
      explicitly = sum(row_linear(inner, out), axis).value() + net.out->bias;
    }
    EXPECT_TRUE(at::equal(y, explicitly));
    y.sum().backward();
    explicitly.sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), other.grad()));
  });
}

TEST(CutModule, OnOneRankIsTheModuleBitForBit) {
  test::run_ranks(1, [](world::World& world) {
    UserNet net, plain;
    const CutModule cut(net, world.group(), all_cuts());
    EXPECT_TRUE(at::equal(net.forward(user_tokens()), plain.forward(user_tokens())));
    net.between = [](const at::Tensor& x) { return x.softmax(-1); };
    net.forward(user_tokens());
  });
}

TEST(CutModule, IsRecomputedAsItWasComputed) {
  UserNet alone;
  user_loss(alone.forward(user_tokens())).backward();
  test::run_ranks(2, [&](world::World& world) {
    for (const bool keeps : {false, true}) {
      UserNet net;
      const CutModule cut(net, world.group(), all_cuts());
      const auto block = [&](const at::Tensor& x) { return net.block(x); };
      net.around = [&](const at::Tensor& x) {
        return keeps ? checkpointed_keeping(lens::keep_products(), block, x)
                     : checkpointed(block, x);
      };
      user_loss(net.forward(user_tokens())).backward();
      for (const char* name : {"gate.weight", "down.weight", "norm.bias", "table.weight"}) {
        const at::Tensor whole = alone.named_parameters()[name].grad();
        const at::Tensor own = net.named_parameters()[name].grad();
        EXPECT_LT(apart(own, part_here(cut.cut(), name, whole)), 1e-12) << name << keeps;
      }
    }
  });
}

TEST(CutModule, RefusesByNameWhatIsNotOfElementsBetweenColumnAndRow) {
  test::run_ranks(2, [](world::World& world) {
    UserNet net;
    const CutModule cut(net, world.group(), all_cuts());
    const auto refused = [&](const std::function<at::Tensor(const at::Tensor&)>& between) {
      net.between = between;
      return refusal_of([&] { (void)net.forward(user_tokens()); });
    };
    using X = const at::Tensor&;
    EXPECT_THAT(refused([](X x) { return x.softmax(-1); }),
                AllOf(HasSubstr("aten::softmax"), HasSubstr("output of fc"),
                      HasSubstr("cut fc as gathered")));
    EXPECT_THAT(refused([&](X x) { return net.dropout(x); }), HasSubstr("aten::dropout"));
    EXPECT_THAT(refused([](X x) {
                  return x.view({3, 4, -1}).flatten(1).view_as(x);
                }),
                AllOf(HasSubstr("aten::flatten"), HasSubstr("last dimension")));
    EXPECT_THAT(refused([](X x) { return x + x.sum(0); }), HasSubstr("aten::sum"));
    EXPECT_THAT(refused([](X x) { return x * at::ones({kInner / 2}, at::kDouble); }),
                AllOf(HasSubstr("aten::mul"), HasSubstr("with a whole tensor")));
    EXPECT_THAT(refused([&](X x) {
                  return net.gate(x.view({3, 4, -1}));
                }),
                AllOf(HasSubstr("gate needs a whole input"), HasSubstr("fc has cut it")));
    EXPECT_THAT(refused([](X x) {
                  return x.matmul(at::ones({kInner / 2, kInner}, at::kDouble));
                }),
                HasSubstr("aten::matmul"));
    net.dropout->eval();
    EXPECT_EQ(refused([&](X x) {
                return net.dropout(x).view({3, 4, -1}).flatten(0, 1);
              }),
              "accepted");
  });
}

TEST(CutModule, RefusesByNameASizeOfTheWholeThatForwardFixes) {
  test::run_ranks(3, [](world::World& world) {  // of 10 columns 4, 3 and 3
    UserNet net;
    const CutModule cut(net, world.group(), all_cuts());
    using X = const at::Tensor&;
    const auto heads = [](X x) { return x.view({3, 4, 2, kInner / 2}).view({12, kInner}); };
    const auto in_turn = [](X x) { return x.unflatten(-1, {2, kInner / 2}).flatten(-2); };
    const auto width = [](X x) { return x.reshape({3, 4, kInner}).flatten(0, 1); };
    const auto narrow = [](X x) { return x.reshape({12 * kInner}); };
    for (const std::function<at::Tensor(X)>& between :
         {std::function<at::Tensor(X)>(heads), {in_turn}, {width}, {narrow}}) {
      net.between = between;
      const std::string refused = refusal_of([&] { (void)net.forward(user_tokens()); });
      EXPECT_THAT(refused, AllOf(HasSubstr("cut_module: aten::"), HasSubstr("output of fc"),
                                 HasSubstr("of whose 10 features this rank has"),
                                 HasSubstr("take it from size(-1), or cut fc as gathered")));
      EXPECT_THAT(refused, testing::Not(HasSubstr("\n")));
    }
    net.between = [](X x) { return x; };
    net.around = [&net](X x) { return net.down(net.gate(x).view({12, kInner})); };
    EXPECT_THAT(refusal_of([&] { (void)net.forward(user_tokens()); }),
                AllOf(HasSubstr("aten::view"), HasSubstr("output of gate"),
                      HasSubstr("is invalid for input of size")));
    // An error of the caller's own, of what is whole, stays libtorch's.
    net.around = [](X x) { return x.view({12, kInner}); };
    EXPECT_THROW((void)net.forward(user_tokens()), c10::Error);
  });
}

TEST(CutModule, RefusesARowWithoutAColumnAndOtherUsesOfAParameter) {
  test::run_ranks(2, [](world::World& world) {
    UserNet net;
    const CutModule cut(net, world.group(), all_cuts());
    const auto x = at::ones({2, kInner}, at::kDouble);
    EXPECT_THAT(refusal_of([&] { net.out(x); }), HasSubstr("out is a row, but its input is whole"));
    const at::Tensor& weight = net.fc->weight;
    EXPECT_THAT(refusal_of([&] { (void)weight.norm(); }),
                AllOf(HasSubstr("reads a parameter of fc"), HasSubstr("norm")));
    EXPECT_THAT(refusal_of([&] {
                  (void)at::ones({2, kOuter}, at::kDouble).matmul(weight[0]);
                }),
                HasSubstr("aten::matmul reads a parameter of fc"));
    EXPECT_EQ(refusal_of([&] { (void)weight.detach().norm(); }), "accepted");
  });
}

TEST(CutModule, ListsAllMistakesOfItsCutsAndChangesNothing) {
  test::run_ranks(4, [](world::World& world) {
    UserNet net;
    net.register_module("few", Linear(2, 3));
    net.register_module("padded",
                        torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 2).padding_idx(1)));
    Linear tied = net.register_module("tied", Linear(kOuter, kTable));
    tied->register_parameter("again", net.head->weight);
    const auto refused = refusal_of([&] {
      const CutModule cut(net, world.group(),
                          {{"gate", kColumn},
                           {"fcc", kColumn},
                           {"norm", kRow},
                           {"few", kColumn},
                           {"table", kColumn},
                           {"*ate", kRow},
                           {"padded", kRow},
                           {"head", kGathered}});
    });
    EXPECT_THAT(refused, AllOf(HasSubstr("gate is cut twice"), HasSubstr("fcc is no module"),
                               HasSubstr("down, fc, few, gate"), HasSubstr("norm is a "),
                               HasSubstr("few 4 ranks share 3 units"),
                               HasSubstr("table is an Embedding; cut it as a row"),
                               HasSubstr("padding_idx")));
    EXPECT_THAT(refused, AllOf(HasSubstr("head shares its weight"), HasSubstr("tied")));
    EXPECT_EQ(net.gate->weight.size(0), kInner);
  });
}

TEST(CutModule, RefusesAWholeWeightInThePlaceOfItsPartByName) {
  test::run_ranks(2, [](world::World& world) {
    UserNet net;
    const CutModule cut(net, world.group(), {{"fc", kColumn}, {"out", kRow}});
    const at::Tensor tokens = at::arange(4).view({2, 2});
    net.fc->weight.set_data(net.fc->weight.detach() * 0.5);
    (void)net.forward(tokens);
    const UserNet other;
    net.fc->weight.set_data(other.fc->weight.detach());
    EXPECT_THAT(refusal_of([&] { (void)net.forward(tokens); }),
                AllOf(HasSubstr("fc.weight"), HasSubstr("this rank's part 5")));
  });
}

TEST(CutModule, FitsOptimizersOfTorch) {
  test::run_ranks(2, [](world::World& world) {
    UserNet net, alone;
    const CutModule cut(net, world.group(), all_cuts());
    const auto train = [](UserNet& of) {
      torch::optim::AdamW optimizer(of.parameters(), torch::optim::AdamWOptions(1e-3));
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        user_loss(of.forward(user_tokens(step))).backward();
        optimizer.step();
      }
    };
    train(net);
    {
      const lens::Pause pause;
      train(alone);
    }
    for (const auto& item : net.named_parameters()) {
      const at::Tensor whole = alone.named_parameters()[item.key()].detach();
      EXPECT_LT(apart(item.value().detach(), part_here(cut.cut(), item.key(), whole)), 1e-9)
          << item.key();
    }
  });
}

}  // namespace
}  // namespace hanji::parallel::tensor
