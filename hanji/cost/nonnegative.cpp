#include "hanji/cost/nonnegative.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hanji::cost {
namespace {

constexpr int kWeightRounds = 4;
constexpr int kMaxSweeps = 5000;           // over all unknowns
constexpr double kSettled = 1e-7;          // relative change of the largest move in a sweep
constexpr double kLeastDeviation = 0.005;  // a machine does not repeat itself more closely

// Minimizes x'Hx/2 - b'x over x >= 0; H has a unit diagonal where an unknown is used.
void descend(const std::vector<std::vector<double>>& h, const std::vector<double>& b,
             std::vector<double>& x) {
  const size_t n = x.size();
  std::vector<double> gradient(n);
  for (size_t i = 0; i < n; ++i) gradient[i] = weighted_sum(h[i], x) - b[i];
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    double moved = 0, largest = 0;
    for (size_t i = 0; i < n; ++i) {
      if (h[i][i] <= 0) continue;
      const double next = std::max(0.0, x[i] - gradient[i] / h[i][i]);
      const double step = next - x[i];
      largest = std::max(largest, next);
      if (step == 0) continue;
      x[i] = next;
      moved = std::max(moved, std::abs(step));
      for (size_t j = 0; j < n; ++j) gradient[j] += step * h[i][j];
    }
    if (moved <= kSettled * largest) return;
  }
}

std::vector<double> solve_weighted(std::span<const Equation> equations,
                                   const std::vector<double>& weights) {
  const size_t n = equations[0].usage.size();
  std::vector<std::vector<double>> h(n, std::vector<double>(n));
  std::vector<double> b(n), scale(n);
  for (size_t e = 0; e < equations.size(); ++e) {
    const double weight = weights[e] / equations[e].value;
    for (size_t i = 0; i < n; ++i) {
      const double u = equations[e].usage[i] * weight;
      scale[i] += u * u;
    }
  }
  for (double& one : scale) one = one > 0 ? 1 / std::sqrt(one) : 0;
  for (size_t e = 0; e < equations.size(); ++e) {
    const double weight = weights[e] / equations[e].value;
    for (size_t i = 0; i < n; ++i) {
      const double u = equations[e].usage[i] * weight * scale[i];
      if (u == 0) continue;
      b[i] += u * weights[e];
      for (size_t j = 0; j < n; ++j) h[i][j] += u * equations[e].usage[j] * weight * scale[j];
    }
  }
  std::vector<double> x(n);
  descend(h, b, x);
  for (size_t i = 0; i < n; ++i) x[i] *= scale[i];
  return x;
}

}  // namespace

double weighted_sum(std::span<const double> usage, std::span<const double> unknowns) {
  return std::inner_product(usage.begin(), usage.end(), unknowns.begin(), 0.0);
}

std::vector<double> solve_nonnegative(std::span<const Equation> equations) {
  if (equations.empty()) return {};
  std::vector<double> weights(equations.size(), 1.0);
  std::vector<double> x;
  for (int round = 0; round < kWeightRounds; ++round) {
    x = solve_weighted(equations, weights);
    std::vector<double> errors;
    for (const Equation& one : equations) {
      errors.push_back(std::abs(weighted_sum(one.usage, x) / one.value - 1));
    }
    std::vector<double> sorted = errors;
    std::ranges::nth_element(sorted, sorted.begin() + static_cast<long>(sorted.size() / 2));
    const double border = std::max(2 * sorted[sorted.size() / 2], kLeastDeviation);
    for (size_t e = 0; e < errors.size(); ++e) {
      weights[e] = errors[e] <= border ? 1 : std::sqrt(border / errors[e]);
    }
  }
  return x;
}

}  // namespace hanji::cost
