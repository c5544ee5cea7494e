#include "hanji/train/grain_sums.h"

#include <algorithm>

#include "hanji/comm/tree_reduce.h"

namespace hanji::train {

GrainSums::GrainSums(schedule::GrainTree tree, const comm::Group& group, int64_t width)
    : tree_(std::move(tree)), group_(group), width_(width) {
  const int64_t rows = std::max(1, tree_.ranks[group.rank()].num_buffers);
  parts_ = group_.heap().zeros({rows, width}, at::kDouble, "totals");
  output_ = parts_[0];
  steps_ =
      std::make_shared<const schedule::StepList>(schedule::tree_all_reduce(tree_, output_.numel()));
}

void GrainSums::add(int64_t grain, std::span<const double> values) {
  grains_[grain].assign(values.begin(), values.end());
}

void GrainSums::fold() {
  for (const schedule::FoldStep& step : tree_.ranks[group_.rank()].steps) {
    std::ranges::copy(grains_[step.grain], row(step.buffer));
    for (const auto& [into, from] : step.combines) {
      for (int64_t k = 0; k < width_; ++k) row(into)[k] += row(from)[k];
    }
  }
  grains_.clear();
}

std::span<const double> GrainSums::total() {
  if (!grains_.empty()) fold();
  comm::tree_all_reduce(parts_, output_, steps_, group_, {.label = "totals"}).wait();
  return {row(0), static_cast<size_t>(width_)};
}

}  // namespace hanji::train
