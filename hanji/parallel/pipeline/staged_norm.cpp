#include "hanji/parallel/pipeline/staged_norm.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "hanji/comm/all_gather.h"
#include "hanji/layers/model.h"
#include "hanji/layout/unit.h"
#include "hanji/parallel/grad_norm.h"

namespace hanji::parallel {

StagedNorm::StagedNorm(const layers::Model& model, const Stages& stages, const comm::Group& group)
    : group_(group) {
  for (const NamedParameter& one : learning_parameters(model)) {
    counted_.push_back({one.tensor, stages.first_rank_of(one.tensor, model),
                        layout::num_blocks(one.tensor.numel())});
  }
}

double StagedNorm::of(const std::vector<NamedParameter>& parameters,
                      const std::vector<at::Tensor>& gradients) const {
  std::vector<double> mine;
  std::vector<int64_t> counts(group_.size());
  for (const Counted& one : counted_) {
    counts[one.rank] += one.num_blocks;
    if (one.rank != group_.rank()) continue;
    const auto found = std::ranges::find_if(parameters, [&](const NamedParameter& parameter) {
      return parameter.tensor.is_same(one.parameter);
    });
    const auto blocks = norm_blocks(gradients.at(found - parameters.begin()));
    mine.insert(mine.end(), blocks.begin(), blocks.end());
  }
  const at::Tensor input = at::empty({std::ssize(mine)}, at::kDouble);
  std::ranges::copy(mine, input.mutable_data_ptr<double>());
  at::Tensor all = at::empty({std::reduce(counts.begin(), counts.end())}, at::kDouble);
  comm::all_gather(all, input, counts, group_, {.label = "norms"}).wait();
  std::vector<const double*> next(counts.size(), all.const_data_ptr<double>());
  for (size_t rank = 1; rank < next.size(); ++rank) next[rank] = next[rank - 1] + counts[rank - 1];
  std::vector<double> sums;
  for (const Counted& one : counted_) {
    sums.insert(sums.end(), next[one.rank], next[one.rank] + one.num_blocks);
    next[one.rank] += one.num_blocks;
  }
  return norm_of_blocks(sums);
}

}  // namespace hanji::parallel
