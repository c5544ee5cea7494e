#include "hanji/train/statistics_sum.h"

#include <algorithm>

#include "hanji/layers/model.h"

namespace hanji::train {

void StatisticsSum::add(std::span<const double> statistics, int64_t samples, int64_t first) {
  sums_.resize(std::max(sums_.size(), first + statistics.size()));
  for (size_t i = 0; i < statistics.size(); ++i)
    sums_[first + i] += statistics[i] * static_cast<double>(samples);
}

void StatisticsSum::add(const StatisticsSum& other) { add(other.sums_, 1); }

void StatisticsSum::update(layers::Model& model, int64_t samples) const {
  if (sums_.empty()) return;
  std::vector<double> mean = sums_;
  for (double& one : mean) one /= static_cast<double>(samples);
  model.update_statistics(mean);
}

}  // namespace hanji::train
