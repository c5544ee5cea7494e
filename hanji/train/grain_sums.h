#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/schedule/grain_tree.h"

namespace hanji::train {

/// Sums a few numbers of every grain over all grains, in double by the grain tree, so that losses
/// have the same bits for any assignment of grains to ranks.
///
/// Order   add() once per own grain, then total() on every rank; repeatedly. Ranks of stages that compute
///         no numbers add none; their total is zero.
class GrainSums {
 public:
  GrainSums(schedule::GrainTree tree, const comm::Group& group, int64_t width);

  /// The numbers of one of this rank's grains; `values` has `width` members.
  void add(int64_t grain, std::span<const double> values);
  /// The sums over the grains of all ranks of the group. Collective.
  std::span<const double> total();

 private:
  void fold();
  double* row(int64_t index) { return parts_.mutable_data_ptr<double>() + index * width_; }

  schedule::GrainTree tree_;
  comm::Group group_;
  int64_t width_;
  at::Tensor parts_;
  at::Tensor output_;
  std::shared_ptr<const schedule::StepList> steps_;
  std::map<int64_t, std::vector<double>> grains_;  ///< That were added.
};

}  // namespace hanji::train
