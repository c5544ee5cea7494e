#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hanji::layers {
class Model;
}

namespace hanji::train {

/// Sums the batch statistics of a step's forwards (Model::statistics()), weighted by samples, as losses
/// are summed, and passes the mean to the model once.
class StatisticsSum {
 public:
  StatisticsSum() = default;
  explicit StatisticsSum(std::span<const double> sums) : sums_(sums.begin(), sums.end()) {}

  /// Adds the statistics of one forward of `samples` samples; `first`: the place of the first of them
  /// among those of all layers.
  void add(std::span<const double> statistics, int64_t samples, int64_t first = 0);
  void add(const StatisticsSum& other);
  /// Updates the buffers of `model` by the mean over `samples`; nothing for a model without statistics.
  void update(layers::Model& model, int64_t samples) const;

  std::span<const double> sums() const { return sums_; }

 private:
  std::vector<double> sums_;
};

}  // namespace hanji::train
