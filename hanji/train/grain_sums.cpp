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

void GrainSums::add(std::span<const double> values) {
  const schedule::FoldStep& step = tree_.ranks[group_.rank()].steps[next_++];
  std::copy(values.begin(), values.end(), row(step.buffer));
  for (int i = 0; i < step.num_combines; ++i) {
    const double* last = row(step.buffer - i);
    double* before = row(step.buffer - i - 1);
    for (int64_t k = 0; k < width_; ++k) before[k] += last[k];
  }
}

std::span<const double> GrainSums::total() {
  comm::tree_all_reduce(parts_, output_, steps_, group_, {.label = "totals"}).wait();
  next_ = 0;
  return {row(0), static_cast<size_t>(width_)};
}

}  // namespace hanji::train
