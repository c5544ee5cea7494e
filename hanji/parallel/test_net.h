#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <cmath>
#include <string>
#include <vector>

#include "hanji/schedule/pairwise_tree.h"
#include "hanji/test/run_ranks.h"

namespace hanji::parallel::test_net {

constexpr int kSteps = 20;
constexpr int64_t kBatch = 12;

/// Shapes that no number of ranks divides, and one weight that is used under two names.
struct Net : torch::nn::Module {
  explicit Net(at::ScalarType dtype, int seed = 0) {
    to(dtype);
    // Values by formula: the ranks are threads, and torch's generator is one for all of them.
    const torch::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      const auto index = torch::arange(p.numel(), torch::kDouble) + 1 + 100 * seed;
      p.copy_((index.sin() * 0.1).view(p.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::tanh(first(x)) + torch::sin(x.mm(tied.t())));
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 1501));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(1501, 5));
  at::Tensor tied = register_parameter("tied", first->weight);
};

/// Rows that depend on nothing but their number and the step.
inline at::Tensor rows(int step, int64_t begin, int64_t end) {
  const auto index = torch::arange(begin * 3, end * 3, torch::kDouble);
  return (index + 1000 * step).sin().view({-1, 3});
}

inline at::Tensor mean_loss(Net& net, int step, int64_t begin, int64_t end) {
  const auto x = rows(step, begin, end).to(net.tied.scalar_type());
  return net.forward(x).square().mean();
}

/// Each parameter once, though one has two names.
inline std::vector<at::Tensor> distinct(Net& net) {
  return {net.tied, net.first->bias, net.second->weight, net.second->bias};
}

using Values = std::vector<at::Tensor>;

inline Values values_of(Net& net) {
  Values values;
  for (const auto& p : distinct(net)) values.push_back(p.detach().clone());
  return values;
}

/// One process, the whole batch: the losses are appended.
inline Values train_alone(std::vector<double>& losses) {
  Net net(torch::kDouble);
  torch::optim::AdamW optimizer(distinct(net), 1e-2);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const auto loss = mean_loss(net, step, 0, kBatch);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return values_of(net);
}

/// Float64 sums in another order, through 20 steps of AdamW, whose division by the root of the
/// second moment keeps relative errors as they are: 20 * 1e-2 * (some 100 roundings of 1e-16).
constexpr double kTolerance = 1e-11;

inline double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  return largest;
}

inline bool same_bits(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

/// Float32 and values over many magnitudes: another order of a sum is another sum.
inline at::Tensor loss_of_grain(Net& net, int step, int64_t grain) {
  const double scale = std::pow(10.0, static_cast<double>(grain % 5) - 2);
  return net.forward(rows(step, grain, grain + 1).to(torch::kFloat)).square().sum() * scale;
}

/// The gradients of grains [begin, end) by the tree as it is written down: no rank, no reducer.
inline Values tree_sum(Net& net, int step, int64_t begin, int64_t end) {
  if (end - begin == 1) {
    net.zero_grad(true);
    loss_of_grain(net, step, begin).backward();
    Values gradients;
    for (const auto& p : distinct(net)) gradients.push_back(p.grad().clone());
    return gradients;
  }
  const int64_t middle = begin + schedule::split_point(end - begin);
  Values left = tree_sum(net, step, begin, middle);
  const Values right = tree_sum(net, step, middle, end);
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

constexpr int kStableSteps = 4;
constexpr int64_t kGrains = 7;

/// One process in stable: every grain's gradient, the tree, AdamW.
inline Values train_alone_stable() {
  Net net(torch::kFloat);
  torch::optim::AdamW optimizer(distinct(net), 1e-2);
  for (int step = 0; step < kStableSteps; ++step) {
    const Values sums = tree_sum(net, step, 0, kGrains);
    for (size_t i = 0; i < sums.size(); ++i) distinct(net)[i].mutable_grad() = sums[i];
    optimizer.step();
  }
  return values_of(net);
}

/// Of this rank's shards, unit by unit.
template <class Sharded>
at::Tensor flat_gradients(const Sharded& sharded) {
  std::vector<at::Tensor> all;
  for (const auto& part : sharded.flat_parts()) all.push_back(part.gradients);
  return at::cat(all);
}

template <class Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace hanji::parallel::test_net
