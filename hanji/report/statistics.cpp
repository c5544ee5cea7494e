#include "hanji/report/statistics.h"

#include <algorithm>
#include <cmath>

namespace hanji::report {
namespace {

// P(at most `most` heads in `tosses` tosses of a fair coin); logarithms, so that many do not
// underflow.
double at_most(int most, int tosses) {
  double sum = 0;
  for (int heads = 0; heads <= most; ++heads) {
    const double ways =
        std::lgamma(tosses + 1.0) - std::lgamma(heads + 1.0) - std::lgamma(tosses - heads + 1.0);
    sum += std::exp(ways - tosses * std::log(2.0));
  }
  return std::min(1.0, sum);
}

}  // namespace

double median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (*std::max_element(values.begin(), values.begin() + middle) + values[middle]) / 2;
}

double quantile(std::vector<double> values, double share) {
  const double wanted = std::ceil(share * static_cast<double>(values.size())) - 1;
  const auto index =
      static_cast<size_t>(std::clamp(wanted, 0.0, static_cast<double>(values.size()) - 1));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[index];
}

Interval median_interval(std::vector<double> values, double confidence) {
  std::sort(values.begin(), values.end());
  const int count = static_cast<int>(values.size());
  int cut = 0;  // values left out at either end
  while (2 * (cut + 2) <= count && 1 - 2 * at_most(cut + 1, count) >= confidence) ++cut;
  return {values[cut], values[count - 1 - cut], std::max(0.0, 1 - 2 * at_most(cut, count))};
}

double sign_test(int wins, int losses) {
  return std::min(1.0, 2 * at_most(std::min(wins, losses), wins + losses));
}

}  // namespace hanji::report
