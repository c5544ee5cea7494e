#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hanji::layers {
class Model;
}

namespace hanji::train {

/// What the forwards of a step have seen of their batches (Model::statistics()), each as often as it
/// has samples: summed as losses are, and given to the model once.
class StatisticsSum {
 public:
  StatisticsSum() = default;
  explicit StatisticsSum(std::span<const double> sums) : sums_(sums.begin(), sums.end()) {}

  /// Those of one forward of so many samples.
  void add(std::span<const double> statistics, int64_t samples);
  void add(const StatisticsSum& other);
  /// Moves the buffers of `model` by the mean over `samples`; nothing for a model without.
  void update(layers::Model& model, int64_t samples) const;

  std::span<const double> sums() const { return sums_; }

 private:
  std::vector<double> sums_;
};

}  // namespace hanji::train
