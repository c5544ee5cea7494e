#include "hanji/parallel/flat_optimizer.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include <array>
#include <condition_variable>
#include <mutex>

#include "hanji/base/status.h"
#include "hanji/parallel/flat_parameters.h"
#include "hanji/test/run_threads.h"

namespace hanji::parallel {
namespace {

/// A matrix, a vector and a stack of matrices in one buffer, with gradients that change by step.
struct Flat {
  explicit Flat(at::ScalarType dtype)
      : parameters{{"matrix", torch::arange(15 * 9, dtype).sin().view({15, 9})},
                   {"vector", torch::arange(70, dtype).cos()},
                   {"stack", torch::arange(2 * 5 * 11, dtype).add(3).sin().view({2, 5, 11})}} {
    std::vector<int64_t> sizes;
    std::vector<at::Tensor> tensors;
    for (const auto& entry : parameters) {
      sizes.push_back(entry.tensor.numel());
      tensors.push_back(entry.tensor);
    }
    layout = layout::flat_layout(sizes);
    values = torch::zeros({layout.count}, dtype);
    move_into_flat(tensors, layout, values);
  }
  at::Tensor gradients(int step) const {
    return torch::arange(layout.count, values.options()).mul(.37).add(step).cos();
  }
  FlatPart part(layout::Range range, const GroupRule& rule, const at::Tensor& gradients) const {
    return {values.slice(0, range.begin, range.end), gradients.slice(0, range.begin, range.end),
            flat_pieces(parameters, layout, range, rule)};
  }
  layout::Range all() const { return {0, layout.count}; }

  std::vector<NamedParameter> parameters;
  layout::FlatLayout layout;
  at::Tensor values;
};

using Make = std::function<std::unique_ptr<FlatOptimizer>(FlatPart)>;

/// Three steps with a divisor of 2.
void train(Flat& flat, const Make& make, const GroupRule& rule) {
  at::Tensor gradients = flat.gradients(0);
  const auto optimizer = make(flat.part(flat.all(), rule, gradients));
  for (int step = 1; step <= 3; ++step) {
    gradients.copy_(flat.gradients(step) * 2);
    optimizer->step(.01, 2.0);
  }
  EXPECT_EQ(optimizer->num_updates(), 3);
}

/// The same by `update`(parameter, gradient, step), for one parameter.
void expect_formula(const Make& make, const std::string& name,
                    const std::function<void(at::Tensor&, const at::Tensor&, int)>& update) {
  Flat flat(torch::kFloat64), reference(torch::kFloat64);
  train(flat, make, decay_matrices(.1));
  for (size_t i = 0; i < reference.parameters.size(); ++i) {
    if (reference.parameters[i].name != name) continue;
    at::Tensor value = reference.parameters[i].tensor.clone();
    const int64_t begin = reference.layout.offsets[i];
    for (int step = 1; step <= 3; ++step) {
      update(value,
             reference.gradients(step).slice(0, begin, begin + value.numel()).view(value.sizes()),
             step);
    }
    // Double throughout; sums of at most 135 terms in another order.
    EXPECT_LT((value - flat.parameters[i].tensor).abs().max().item<double>(), 1e-13) << name;
  }
}

TEST(FlatAdamW, FollowsTheFormula) {
  const Make make = [](FlatPart part) {
    return flat_adamw(std::move(part), {.beta1 = .9, .beta2 = .99, .epsilon = 1e-8});
  };
  at::Tensor m, v;
  const auto update = [&](at::Tensor& p, const at::Tensor& g, int step) {
    m = step == 1 ? .1 * g : .9 * m + .1 * g;
    v = step == 1 ? .01 * g * g : .99 * v + .01 * g * g;
    if (p.dim() > 1) p = p * (1 - .01 * .1);
    const at::Tensor root = (v / (1 - std::pow(.99, step))).sqrt();
    p = p - .01 * m / (1 - std::pow(.9, step)) / (root + 1e-8);
  };
  for (const char* name : {"matrix", "vector"}) expect_formula(make, name, update);
}

TEST(FlatSgd, FollowsTheFormula) {
  at::Tensor momentum;
  expect_formula([](FlatPart part) { return flat_sgd(std::move(part), {.momentum = .9}); },
                 "matrix",
                 [&](at::Tensor& p, const at::Tensor& g, int) {
                   const at::Tensor gradient = g + .1 * p;
                   momentum = momentum.defined() ? .9 * momentum + gradient : gradient.clone();
                   p -= .01 * momentum;
                 });
  expect_formula([](FlatPart part) { return flat_sgd(std::move(part)); }, "vector",
                 [](at::Tensor& p, const at::Tensor& g, int) { p -= .01 * g; });
}

TEST(FlatLion, FollowsTheFormula) {
  at::Tensor momentum = torch::zeros({15, 9}, torch::kFloat64);
  expect_formula([](FlatPart part) { return flat_lion(std::move(part)); }, "matrix",
                 [&](at::Tensor& p, const at::Tensor& g, int) {
                   p = p * (1 - .01 * .1) - .01 * (.9 * momentum + .1 * g).sign();
                   momentum = .99 * momentum + .01 * g;
                 });
}

TEST(FlatAdafactor, FollowsTheFormulaForMatricesStacksAndVectors) {
  at::Tensor rows, columns, squares;
  const auto update = [&](at::Tensor& p, const at::Tensor& g, int step) {
    const double weight = std::pow(step, -.8);
    const double alpha = std::max(1e-3, p.square().mean().sqrt().item<double>()) *
                         std::min(.01, 1 / std::sqrt(step));
    if (p.dim() > 1) p = p * (1 - .01 * .1);
    at::Tensor variance;
    if (p.dim() > 1) {
      const at::Tensor row = g.square().mean(-1, true), column = g.square().mean(-2, true);
      rows = step == 1 ? row : rows.lerp(row, weight);
      columns = step == 1 ? column : columns.lerp(column, weight);
      variance = at::matmul(rows, columns) / rows.mean(-2, true);
    } else {
      squares = step == 1 ? g.square() : squares.lerp(g.square(), weight);
      variance = squares;
    }
    const at::Tensor direction = g * variance.rsqrt();
    const double rms = direction.square().mean().sqrt().item<double>();
    p = p - alpha / std::max(1.0, rms) * direction;
  };
  const Make make = [](FlatPart part) { return flat_adafactor(std::move(part)); };
  for (const char* name : {"matrix", "stack", "vector"}) expect_formula(make, name, update);
}

struct Kind {
  const char* name;
  Make make;
  int64_t state_elements;
};

const std::vector<Kind>& element_wise() {
  static const std::vector<Kind> kinds = {
      {"AdamW", [](FlatPart part) { return flat_adamw(std::move(part)); }, 2},
      {"SGD", [](FlatPart part) { return flat_sgd(std::move(part)); }, 0},
      {"SGD, momentum",
       [](FlatPart part) { return flat_sgd(std::move(part), {.momentum = .9, .nesterov = true}); },
       1},
      {"Lion", [](FlatPart part) { return flat_lion(std::move(part)); }, 1}};
  return kinds;
}

TEST(FlatOptimizer, PartsHaveTheBitsOfTheWhole) {
  for (const Kind& kind : element_wise()) {
    Flat whole(torch::kFloat), parts(torch::kFloat);
    train(whole, kind.make, decay_matrices(.1));
    at::Tensor gradients = parts.gradients(0);
    std::vector<FlatPart> cut;
    for (const layout::Range range :
         {layout::Range{0, 64}, layout::Range{64, 192}, layout::Range{192, parts.layout.count}}) {
      cut.push_back(parts.part(range, decay_matrices(.1), gradients));
    }
    const auto optimizer = optimizer_of_parts(
        [&](FlatPart part, const SumOverParts&) { return kind.make(std::move(part)); }, cut);
    for (int step = 1; step <= 3; ++step) {
      gradients.copy_(parts.gradients(step) * 2);
      optimizer->step(.01, 2.0);
    }
    EXPECT_TRUE(at::equal(whole.values, parts.values)) << kind.name;
    EXPECT_EQ(optimizer->num_updates(), 3);
    EXPECT_EQ(std::ssize(optimizer->state()), 3 * kind.state_elements) << kind.name;
    EXPECT_EQ(optimizer->state_bytes(), kind.state_elements * 4 * parts.layout.count);
  }
}

TEST(FlatOptimizer, PartsGoOnFromTheUpdatesThatWereSaved) {
  for (const Kind& kind : element_wise()) {
    Flat whole(torch::kFloat), parts(torch::kFloat);
    const at::Tensor gradients = whole.gradients(1);
    const auto cut = [&](const Flat& flat, layout::Range range) {
      return flat.part(range, decay_matrices(.1), gradients.clone());
    };
    const auto of_whole = kind.make(cut(whole, whole.all()));
    const auto of_parts = optimizer_of_parts(
        [&](FlatPart part, const SumOverParts&) { return kind.make(std::move(part)); },
        {cut(parts, {0, 64}), cut(parts, {64, parts.layout.count})});
    for (FlatOptimizer* optimizer : {of_whole.get(), of_parts.get()}) {
      optimizer->set_num_updates(7);
      optimizer->step(.01, 1);
    }
    EXPECT_TRUE(at::equal(whole.values, parts.values)) << kind.name;
  }
}

/// As of a parameter that ranks of tp share out.
TEST(FlatOptimizer, AnElementHasTheBitsThatItHasInAShorterParameter) {
  for (const Kind& kind : element_wise()) {
    const auto updated = [&](int64_t size) {
      const layout::FlatLayout layout = layout::flat_layout(std::array{size});
      at::Tensor values = torch::zeros({layout.count}), gradients = torch::zeros({layout.count});
      const at::Tensor own = values.slice(0, 0, size);
      own.copy_(torch::arange(size).cos());
      const auto optimizer = kind.make(
          {values, gradients,
           flat_pieces({{"vector", own}}, layout, {0, layout.count}, decay_matrices(.1))});
      for (int step = 1; step <= 20; ++step) {
        gradients.slice(0, 0, size).copy_(torch::arange(size).mul(.37).add(step).sin());
        optimizer->step(.01, 3.0);
      }
      return own;
    };
    const at::Tensor whole = updated(70);
    for (const int64_t size : {1, 7, 15, 35, 69}) {
      EXPECT_TRUE(at::equal(updated(size), whole.slice(0, 0, size))) << kind.name << " " << size;
    }
  }
}

TEST(FlatOptimizer, SaysHowManyBytesItKeeps) {
  Flat flat(torch::kFloat);
  const at::Tensor gradients = flat.gradients(0);
  const auto part = [&] { return flat.part(flat.all(), decay_matrices(0), gradients); };
  for (const Kind& kind : element_wise()) {
    EXPECT_EQ(kind.make(part())->state_bytes(), kind.state_elements * 4 * flat.layout.count)
        << kind.name;
  }
  // Rows and columns of 15 x 9 and 2 of 5 x 11, and 70 of the vector, in float64.
  EXPECT_EQ(flat_adafactor(part())->state_bytes(), 8 * (15 + 9 + 2 * (5 + 11) + 70));
}

TEST(FlatOptimizer, AGroupHasItsOwnRateAndDecay) {
  const GroupRule rule = [](const NamedParameter& parameter) {
    if (parameter.name == "vector") return ParameterGroup{.learning_rate_factor = 0};
    return ParameterGroup{.learning_rate_factor = .5, .weight_decay = .2};
  };
  for (const Kind& kind : element_wise()) {
    Flat flat(torch::kFloat64), half(torch::kFloat64);
    const at::Tensor vector = flat.parameters[1].tensor.clone();
    train(flat, kind.make, rule);
    EXPECT_TRUE(at::equal(flat.parameters[1].tensor, vector)) << kind.name;
    at::Tensor gradients = half.gradients(0);
    const auto optimizer = kind.make(half.part(half.all(), decay_matrices(.2), gradients));
    for (int step = 1; step <= 3; ++step) {
      gradients.copy_(half.gradients(step));
      optimizer->step(.005, 1.0);
    }
    EXPECT_LT((flat.parameters[0].tensor - half.parameters[0].tensor).abs().max().item<double>(),
              1e-15)
        << kind.name;
  }
}

TEST(FlatAdafactor, PartsSumTheirStatistics) {
  Flat whole(torch::kFloat64), parts(torch::kFloat64);
  const Make make = [](FlatPart part) { return flat_adafactor(std::move(part)); };
  train(whole, make, decay_matrices(.1));
  at::Tensor gradients = parts.gradients(0);
  std::mutex mutex;
  std::condition_variable met;
  at::Tensor total;
  int arrived = 0, left = 0;
  // Two parts on two threads; the last to arrive has the sum.
  const SumOverParts sum = [&](at::Tensor& values) {
    std::unique_lock lock(mutex);
    met.wait(lock, [&] { return left == 0; });
    total = arrived == 0 ? values.clone() : total + values;
    if (++arrived == 2) left = 2;
    met.notify_all();
    met.wait(lock, [&] { return left > 0; });
    values.copy_(total);
    if (--left == 0) arrived = 0;
    met.notify_all();
  };
  test::run_threads(2, [&](int rank) {
    const layout::Range range =
        rank == 0 ? layout::Range{0, 64} : layout::Range{64, parts.layout.count};
    const auto optimizer =
        flat_adafactor(parts.part(range, decay_matrices(.1), gradients), {}, sum);
    for (int step = 1; step <= 3; ++step) {
      gradients.slice(0, range.begin, range.end)
          .copy_(parts.gradients(step).slice(0, range.begin, range.end) * 2);
      optimizer->step(.01, 2.0);
    }
  });
  EXPECT_LT((whole.values - parts.values).abs().max().item<double>(), 1e-13);
}

TEST(FlatOptimizer, WhatDoesNotFitIsRefused) {
  Flat flat(torch::kFloat);
  const auto part = [&](const at::Tensor& gradients) {
    return FlatPart{flat.values, gradients,
                    flat_pieces(flat.parameters, flat.layout, flat.all(), decay_matrices(0))};
  };
  EXPECT_THAT([&] { flat_adamw(part(torch::zeros({3}))); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("do not fit together")));
  EXPECT_THROW(flat_sgd(part(flat.gradients(0)), {.nesterov = true}), Error);
  flat.values = flat.values.to(torch::kBFloat16);
  EXPECT_THAT([&] { flat_lion(part(flat.gradients(0))); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("float32 and float64")));
}

}  // namespace
}  // namespace hanji::parallel
