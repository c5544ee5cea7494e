#include "hanji/data/internal/chain_distances.h"

#include <array>
#include <cmath>
#include <cstdlib>

namespace hanji::data::internal {
namespace {

constexpr double kStep = 3.8;  // angstrom, as all lengths here
constexpr double kBin = 3.0;
constexpr double kPersistence = 0.5;  ///< Of a step, the part that has the last one's direction.
constexpr double kKnown = 0.25;
constexpr double kFar = 1e9;

using Point = std::array<double, 3>;

int64_t class_of(double distance) {
  return std::min(kDistanceClasses - 1, static_cast<int64_t>(distance / kBin));
}

void to_unit(Point& direction) {
  const double length = std::hypot(direction[0], direction[1], direction[2]);
  for (double& one : direction) one /= length;
}

std::vector<Point> draw_chain(int64_t residues, Draws& draws) {
  std::vector<Point> chain(static_cast<size_t>(residues));
  Point direction = {draws.normal(), draws.normal(), draws.normal()};
  to_unit(direction);
  for (size_t i = 1; i < chain.size(); ++i) {
    for (size_t d = 0; d < direction.size(); ++d) {
      chain[i][d] = chain[i - 1][d] + kStep * direction[d];
    }
    for (double& one : direction) one = kPersistence * one + (1 - kPersistence) * draws.normal();
    to_unit(direction);
  }
  return chain;
}

/// In the middle of its bin; kFar where it is not known.
std::vector<double> known_lengths(std::span<const int64_t> known) {
  std::vector<double> lengths;
  for (const int64_t one : known) {
    lengths.push_back(one == 0 ? kFar : (static_cast<double>(one) - 0.5) * kBin);
  }
  return lengths;
}

}  // namespace

void draw_distances(int64_t residues, Draws& draws, std::span<int64_t> known,
                    std::span<int64_t> classes) {
  const std::vector<Point> chain = draw_chain(residues, draws);
  for (int64_t i = 0; i < residues; ++i) {
    for (int64_t j = i; j < residues; ++j) {
      const Point &from = chain[i], &to = chain[j];
      const int64_t found = class_of(std::hypot(to[0] - from[0], to[1] - from[1], to[2] - from[2]));
      const bool is_known = j - i < 2 || draws.uniform() < kKnown;
      const auto here = i * residues + j, there = j * residues + i;
      classes[here] = classes[there] = found;
      known[here] = known[there] = is_known ? 1 + found : 0;
    }
  }
}

std::vector<int64_t> classes_between_bounds(int64_t residues, std::span<const int64_t> known) {
  const auto n = static_cast<size_t>(residues);
  const std::vector<double> lengths = known_lengths(known);
  std::vector<double> upper = lengths, lower(n * n);
  for (size_t i = 0; i < n; ++i) upper[i * n + i] = 0;
  for (size_t k = 0; k < n; ++k) {
    for (size_t e = 0; e < n * n; ++e) {
      upper[e] = std::min(upper[e], upper[e / n * n + k] + upper[k * n + e % n]);
    }
  }
  for (size_t k = 0; k < n; ++k) {
    for (size_t e = 0; e < n * n; ++e) {
      const size_t i = e / n, j = e % n;
      if (known[i * n + k] == 0) continue;
      const double bound = lengths[i * n + k] - upper[k * n + j];
      if (bound > lower[e]) lower[e] = bound;
      if (bound > lower[j * n + i]) lower[j * n + i] = bound;
    }
  }
  std::vector<int64_t> classes;
  for (size_t e = 0; e < n * n; ++e) {
    classes.push_back(known[e] > 0 ? known[e] - 1 : class_of((upper[e] + lower[e]) / 2));
  }
  return classes;
}

}  // namespace hanji::data::internal
