#include "hanji/layout/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hanji::layout {
namespace {

Status check_request(int64_t num_grains, int ranks, std::span<const double> weights) {
  if (ranks < 1)
    return base::invalid_argument(fmt::format("split over {} ranks; need at least 1", ranks));
  if (num_grains < ranks) {
    return base::invalid_argument(
        fmt::format("{} grains cannot be split over {} ranks, each needs one whole grain; raise "
                    "train.global_batch, lower train.grain or run fewer ranks",
                    num_grains, ranks));
  }
  if (!weights.empty() && weights.size() != static_cast<size_t>(ranks)) {
    return base::invalid_argument(fmt::format(
        "train.split has {} weights for {} ranks; give one each", weights.size(), ranks));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] <= 0) {
      return base::invalid_argument(fmt::format(
          "train.split[{}] is {}; every weight must be a positive number", i, weights[i]));
    }
  }
  return {};
}

// Hamilton's method: everyone gets the floor of its quota, the left-over goes by remainder.
std::vector<int64_t> largest_remainder(int64_t total, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> sizes(weights.size());
  std::vector<double> remainders(weights.size());
  int64_t given = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double quota = static_cast<double>(total) * (weights[i] / sum);
    sizes[i] = std::min(static_cast<int64_t>(quota), total - given);
    remainders[i] = quota - std::floor(quota);
    given += sizes[i];
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  for (size_t i = 0; given < total; i = (i + 1) % order.size(), ++given) ++sizes[order[i]];
  return sizes;
}

}  // namespace

Result<std::vector<Range>> split_grains(int64_t num_grains, int ranks,
                                        std::span<const double> weights) {
  HANJI_RETURN_IF_ERROR(check_request(num_grains, ranks, weights));
  std::vector<double> shares(weights.begin(), weights.end());
  if (shares.empty()) shares.assign(ranks, 1.0);
  const std::vector<int64_t> sizes = largest_remainder(num_grains, shares);
  std::vector<Range> ranges;
  int64_t next = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (sizes[rank] == 0) {
      return base::invalid_argument(fmt::format(
          "train.split[{}] = {} leaves rank {} without any of the {} grains; raise the weight or "
          "train.global_batch",
          rank, shares[rank], rank, num_grains));
    }
    ranges.push_back({next, next + sizes[rank]});
    next += sizes[rank];
  }
  return ranges;
}

}  // namespace hanji::layout
