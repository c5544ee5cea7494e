#include "hanji/report/blocks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hanji/base/normal.h"
#include "hanji/base/random.h"
#include "hanji/report/statistics.h"

namespace hanji::report {
namespace {

constexpr uint64_t kDraws = 200;  // the deviation of medians then has an error of 5 %
constexpr double kLargestCorrelation = 0.99;

/// Places in ascending order, around 0.
std::vector<double> centred_ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i + 1;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    const double place =
        (static_cast<double>(i + end) - 1 - static_cast<double>(values.size() - 1)) / 2;
    for (; i < end; ++i) ranks[order[i]] = place;
  }
  return ranks;
}

double product_at(std::span<const double> ranks, size_t distance) {
  double sum = 0;
  for (size_t i = 0; i + distance < ranks.size(); ++i) sum += ranks[i] * ranks[i + distance];
  return sum;
}

/// The variance of the median, and the blocks that tell it.
struct Spread {
  double variance = 0;
  double freedom = 1;
};

Spread spread_of_median(std::span<const double> steps, size_t length, uint64_t key) {
  double sum = 0, squares = 0;
  const double middle = median({steps.begin(), steps.end()});
  std::vector<double> drawn(steps.size());
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    const std::vector<size_t> indices = draw_blocks(steps.size(), length, key, draw);
    std::ranges::transform(indices, drawn.begin(), [&](size_t i) { return steps[i]; });
    const double off = median(drawn) - middle;
    sum += off;
    squares += off * off;
  }
  const auto draws = static_cast<double>(kDraws);
  const double blocks = static_cast<double>(steps.size()) / static_cast<double>(length);
  const double variance = std::max(0.0, squares / draws - sum / draws * (sum / draws));
  // Blocks that overlap at no end of the series vary less than whole ones.
  return {variance * blocks / std::max(1.0, blocks - 1), std::max(2.0, blocks - 1)};
}

double welch_freedom(const Spread& a, const Spread& b) {
  const double both = a.variance + b.variance;
  const double least = std::min(a.freedom, b.freedom);
  if (both <= 0) return least;
  return std::max(
      least,
      both * both / (a.variance * a.variance / a.freedom + b.variance * b.variance / b.freedom));
}

}  // namespace

double correlation_time(std::span<const double> steps) {
  if (steps.size() < 3) return 1;
  const std::vector<double> ranks = centred_ranks(steps);
  const double square = product_at(ranks, 0);
  if (square <= 0) return 1;  // all are equal
  const auto count = static_cast<double>(steps.size());
  double rho = product_at(ranks, 1) / square;
  rho = std::clamp(rho + (1 + 4 * rho) / count, 0.0, kLargestCorrelation);
  double sum = -1;
  for (size_t at = 0; at + 1 < steps.size() / 2; at += 2) {
    const double pair = (product_at(ranks, at) + product_at(ranks, at + 1)) / square;
    if (pair <= 0) break;
    sum += 2 * pair;
  }
  return std::max({1.0, sum, (1 + rho) / (1 - rho)});
}

size_t block_length(size_t steps, double correlation_time) {
  const auto wanted = static_cast<size_t>(std::ceil(2 * correlation_time));
  return std::clamp<size_t>(wanted, 1, std::max<size_t>(1, steps / 5));
}

std::vector<size_t> draw_blocks(size_t count, size_t length, uint64_t key, uint64_t draw) {
  std::vector<size_t> indices;
  indices.reserve(count + length);
  for (uint64_t block = 0; indices.size() < count; ++block) {
    const double at = base::uniform(base::Philox::draw(key, draw, block)[0]);
    const auto first = static_cast<size_t>(at * static_cast<double>(count - length + 1));
    for (size_t i = 0; i < length; ++i) indices.push_back(first + i);
  }
  indices.resize(count);
  return indices;
}

bool MedianChange::is_told() const {
  return std::min(independent_before, independent_after) >= kMinIndependent;
}

MedianChange median_change(std::span<const double> before, std::span<const double> after,
                           int tests) {
  MedianChange change;
  if (before.empty() || after.empty()) return change;
  const double times[] = {correlation_time(before), correlation_time(after)};
  change.before = median({before.begin(), before.end()});
  change.after = median({after.begin(), after.end()});
  change.independent_before = static_cast<double>(before.size()) / times[0];
  change.independent_after = static_cast<double>(after.size()) / times[1];
  const Spread first = spread_of_median(before, block_length(before.size(), times[0]), 1);
  const Spread second = spread_of_median(after, block_length(after.size(), times[1]), 2);
  const double p = 1 - kNominal / (2 * std::max(1, tests));
  const double reach = student_quantile(p, welch_freedom(first, second)) *
                       std::sqrt(first.variance + second.variance);
  change.low = change.after - change.before - reach;
  change.high = change.after - change.before + reach;
  return change;
}

double student_quantile(double p, double freedom) {
  const double z = base::normal_quantile(p), z2 = z * z, n = freedom;
  return z + z * (z2 + 1) / (4 * n) + z * ((5 * z2 + 16) * z2 + 3) / (96 * n * n) +
         z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * n * n * n);
}

}  // namespace hanji::report
