#include "hanji/comm/differentiable.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/transpose.h"

namespace hanji::comm {
namespace {

using internal::run_ranks;
using Function = std::function<at::Tensor(const at::Tensor&, const Group&)>;

at::Tensor wave(at::IntArrayRef sizes, double phase) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble) * 0.7 + phase).view(sizes);
}

/// The losses of all ranks together, each of which weighs its own result.
at::Tensor loss_of(const at::Tensor& result, const Group& group) {
  return (result * wave(result.sizes(), 10.0 + group.rank())).sum();
}

/// In the heap if `start` lies there.
at::Tensor copy_of(const at::Tensor& start, const Group& group) {
  const bool in_heap = group.heap().contains(start);
  return internal::place(start, in_heap ? internal::Where::kHeap : internal::Where::kPrivate,
                         group);
}

double total_loss(const Function& function, const at::Tensor& input, const Group& group) {
  at::Tensor loss = loss_of(function(input, group), group);
  all_reduce(loss, group).wait();
  return loss.item<double>();
}

/// Compares autograd's gradient of the sum of all losses with differences, for every element of
/// every rank's input in turn. The functions are linear: differences of any width are exact.
void check_gradient(const Function& function, const at::Tensor& start, const Group& group) {
  at::Tensor input = copy_of(start, group).requires_grad_();
  loss_of(function(input, group), group).backward();
  const at::Tensor gradient = input.grad().view(-1);
  for (int rank = 0; rank < group.size(); ++rank) {
    at::Tensor sizes = at::full({group.size()}, 0, at::kLong);
    sizes[group.rank()] = start.numel();
    all_reduce(sizes, group).wait();
    for (int64_t i = 0; i < sizes[rank].item<int64_t>(); ++i) {
      const auto shifted = [&](double by) {
        at::Tensor x = copy_of(start, group);
        if (group.rank() == rank) x.view(-1)[i] += by;
        return total_loss(function, x, group);
      };
      const double difference = (shifted(0.5) - shifted(-0.5)) / 1.0;
      if (group.rank() == rank) {
        EXPECT_NEAR(gradient[i].item<double>(), difference, 1e-12)
            << "rank " << rank << " element " << i;
      }
    }
  }
}

/// A gradient that is differentiated again: the second derivative of a quadratic loss.
void check_second(const Function& function, const at::Tensor& start, const Group& group) {
  at::Tensor input = start.clone().requires_grad_();
  const at::Tensor result = function(input, group);
  const at::Tensor loss = (result * result).sum() / 2;
  const auto first = torch::autograd::grad({loss}, {input}, {}, true, true)[0];
  const at::Tensor weights = wave(start.sizes(), group.rank());
  const auto second = torch::autograd::grad({(first * weights).sum()}, {input})[0];
  // With y = Ax the Hessian is A'A, which takes the weights of all ranks to: forward and back.
  at::Tensor probe = weights.clone().requires_grad_();
  const at::Tensor image = function(probe, group);
  const auto due = torch::autograd::grad({image}, {probe}, {image.detach()})[0];
  EXPECT_TRUE(at::allclose(second, due, 1e-12, 1e-12));
}

void check_all(int ranks, const Function& function,
               const std::function<at::Tensor(const Group&)>& start) {
  run_ranks(ranks, [&](const Group& group) {
    const at::Tensor input = start(group);
    check_gradient(function, input, group);
    check_second(function, input, group);
    at::Tensor in_heap = group.heap().empty(input.sizes(), at::kDouble, "test");
    check_gradient(function, in_heap.copy_(input), group);
  });
}

at::Tensor four_by_two(const Group& group) { return wave({4, 2}, group.rank()); }

TEST(Differentiable, AllReduceBroadcastAndReduce) {
  check_all(
      2, [](const at::Tensor& x, const Group& g) { return differentiable::all_reduce(x, g); },
      four_by_two);
  check_all(
      3, [](const at::Tensor& x, const Group& g) { return differentiable::broadcast(x, 1, g); },
      four_by_two);
  check_all(
      3, [](const at::Tensor& x, const Group& g) { return differentiable::reduce(x, 2, g); },
      four_by_two);
}

TEST(Differentiable, RoutinesWithEqualShares) {
  check_all(
      2, [](const at::Tensor& x, const Group& g) { return differentiable::all_gather(x, g); },
      four_by_two);
  check_all(
      2, [](const at::Tensor& x, const Group& g) { return differentiable::reduce_scatter(x, g); },
      four_by_two);
  check_all(
      2, [](const at::Tensor& x, const Group& g) { return differentiable::gather(x, 1, g); },
      four_by_two);
  check_all(
      2, [](const at::Tensor& x, const Group& g) { return differentiable::scatter(x, 1, g); },
      four_by_two);
  check_all(
      2, [](const at::Tensor& x, const Group& g) { return differentiable::all_to_all(x, g); },
      four_by_two);
}

TEST(Differentiable, RoutinesWithUnevenShares) {
  const differentiable::Rows rows = {1, 0, 3};
  const auto own = [&](const Group& g) { return wave({rows[g.rank()], 2}, g.rank()); };
  check_all(
      3,
      [&](const at::Tensor& x, const Group& g) { return differentiable::all_gather(x, g, rows); },
      own);
  check_all(
      3,
      [&](const at::Tensor& x, const Group& g) {
        return differentiable::reduce_scatter(x, g, rows);
      },
      four_by_two);
  check_all(
      3, [&](const at::Tensor& x, const Group& g) { return differentiable::gather(x, 0, g, rows); },
      own);
  check_all(
      3,
      [&](const at::Tensor& x, const Group& g) { return differentiable::scatter(x, 2, g, rows); },
      four_by_two);
  const differentiable::Rows pairs = {1, 0, 2, 0, 0, 1, 2, 1, 0};
  check_all(
      3,
      [&](const at::Tensor& x, const Group& g) { return differentiable::all_to_all(x, g, pairs); },
      [](const Group& g) {
        return wave({g.rank() == 1 ? 1 : 3, 2}, g.rank());
      });
}

TEST(Differentiable, RefusesRowsThatDoNotFit) {
  const Group group = Group::alone();
  EXPECT_THROW(differentiable::all_gather(at::ones({2}), group, {1, 1}), Error);
  EXPECT_THROW(differentiable::all_gather(at::scalar_tensor(1), group), Error);
  run_ranks(2, [](const Group& two) {
    EXPECT_THROW(differentiable::reduce_scatter(at::ones({3, 2}), two), Error);
  });
}

/// Part `rank` of `whole` along `dim`, where parts have `sizes`.
at::Tensor part(const at::Tensor& whole, int64_t dim, const std::vector<int64_t>& sizes, int rank) {
  return whole.split_with_sizes(sizes, dim)[rank].contiguous();
}

TEST(Transpose, MovesAShardFromOneDimensionToAnother) {
  const at::Tensor whole = wave({6, 5, 7}, 0);
  run_ranks(3, [&](const Group& group) {
    const std::vector<int64_t> rows = {2, 2, 2}, columns = {3, 2, 2}, uneven = {1, 0, 5};
    const at::Tensor by_row = part(whole, 0, rows, group.rank());
    const at::Tensor by_column = transpose(by_row, 0, -1, group);
    EXPECT_TRUE(at::equal(by_column, part(whole, 2, columns, group.rank())));
    const at::Tensor back = transpose(by_column, 2, 0, group, {.from = columns, .to = rows});
    EXPECT_TRUE(at::equal(back, by_row));
    const at::Tensor middle = transpose(by_column, 2, 1, group, {.from = columns, .to = {0, 4, 1}});
    EXPECT_TRUE(at::equal(middle, part(whole, 1, {0, 4, 1}, group.rank())));
    const at::Tensor shifted = transpose(middle, 1, 0, group, {.from = {0, 4, 1}, .to = uneven});
    EXPECT_TRUE(at::equal(shifted, part(whole, 0, uneven, group.rank())));
  });
}

TEST(Differentiable, AllReduceWithFactors) {
  const auto weigh = [](const at::Tensor& x, const Group& g) {
    return differentiable::all_reduce(x, g.rank() + 0.5, g);
  };
  check_all(2, weigh, [](const Group& g) { return wave({3, 2}, g.rank()); });
}

TEST(Differentiable, SendRecvAroundARing) {
  const auto around = [](const at::Tensor& x, const Group& g) {
    const int n = g.size();
    const int before = (g.rank() + n - 1) % n;
    return differentiable::send_recv(x, (g.rank() + 1) % n, before, g, before + 1);
  };
  for (const int ranks : {1, 2, 3}) {
    check_all(ranks, around, [](const Group& g) { return wave({g.rank() + 1, 2}, g.rank()); });
  }
}

TEST(Transpose, BackwardIsItsInverse) {
  const auto turn = [](const at::Tensor& x, const Group& g) {
    return transpose(x, 0, 1, g, {.from = {1, 3}, .to = {2, 1}});
  };
  check_all(2, turn, [](const Group& g) { return wave({g.rank() == 0 ? 1 : 3, 3}, g.rank()); });
}

TEST(Transpose, RefusesWhatDoesNotFit) {
  const Group group = Group::alone();
  const at::Tensor x = at::ones({2, 3});
  EXPECT_THROW(transpose(x, 0, 0, group), Error);
  EXPECT_THROW(transpose(x, 0, 2, group), Error);
  EXPECT_THROW(transpose(x, 0, 1, group, {.from = {1}}), Error);
  EXPECT_THROW(transpose(x, 0, 1, group, {.to = {2}}), Error);
  EXPECT_THROW(transpose(x, 0, 1, group, {.to = {1, 2}}), Error);
}

}  // namespace
}  // namespace hanji::comm
