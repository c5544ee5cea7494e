#include "hanji/parallel/tensor/loss.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>

#include "hanji/base/status.h"
#include "hanji/compute/cross_entropy.h"

namespace hanji::parallel::tensor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows at once: the exponentials of so many are all that is held beside the logits.
constexpr int64_t kRowsAtOnce = 256;

/// A target's place among the columns of this rank; `absent` where another rank has it or none counts.
struct Targets {
  at::Tensor column, absent, ignored;
};

Targets targets_here(const at::Tensor& targets, int64_t begin, int64_t columns) {
  const at::Tensor here = targets - begin;
  const at::Tensor ignored = targets.lt(0);
  const at::Tensor absent = here.lt(0).logical_or_(here.ge(columns)).logical_or_(ignored);
  return {here.masked_fill(absent, 0).unsqueeze(1), absent, ignored};
}

void check_targets_of_all(const at::Tensor& targets, int64_t vocabulary) {
  if (targets.numel() == 0) return;
  const auto [least, most] = at::aminmax(targets);
  for (const int64_t target : {least.item<int64_t>(), most.item<int64_t>()}) {
    if (target >= -1 && target < vocabulary) continue;
    throw Error(base::invalid_argument(
        fmt::format("target {} lies outside [-1, {}); is the vocabulary that of the data?", target,
                    vocabulary)));
  }
}

/// exp(logits - largest), over the logits if they may go; its sums by row.
void exponentials(const at::Tensor& logits, const at::Tensor& largest, bool overwrite,
                  at::Tensor& sums) {
  for (int64_t begin = 0; begin < logits.size(0); begin += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, logits.size(0) - begin);
    at::Tensor part = logits.narrow(0, begin, rows);
    const at::Tensor powers =
        part.to(largest.scalar_type()).sub(largest.narrow(0, begin, rows).unsqueeze(1)).exp_();
    at::Tensor sum = sums.narrow(0, begin, rows);
    at::sum_out(sum, powers, 1);
    if (overwrite) part.copy_(powers);
  }
}

/// The softmax less one at the target, of rows that count: what backward gives.
void turn_into_gradient(at::Tensor& powers, const at::Tensor& sums, const Targets& targets) {
  for (int64_t begin = 0; begin < powers.size(0); begin += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, powers.size(0) - begin);
    at::Tensor part = powers.narrow(0, begin, rows);
    part.copy_(part.to(sums.scalar_type()).div_(sums.narrow(0, begin, rows).unsqueeze(1)));
  }
  const at::Tensor minus_one = targets.absent.logical_not().to(powers.scalar_type()).neg_();
  powers.scatter_add_(1, targets.column, minus_one.unsqueeze(1));
  powers.masked_fill_(targets.ignored.unsqueeze(1), 0);
}

/// What stands in a row of logits that the axis cuts.
struct Columns {
  const Axis& axis;
  int64_t begin;                ///< Of this rank's.
  const ProductBlocks& blocks;  ///< Of features null: one sum of each rank.
};

/// Sizes of blocks of rows, or of all of them.
Extents sizes_of(const FeatureBlocksPtr& rows, int64_t count) {
  if (!rows) return {count};
  Extents sizes;
  for (const std::vector<layout::Range>& ranges : rows->ranges) sizes.push_back(ranges[0].size());
  return sizes;
}

/// The sums of all columns' exponentials, and the logits at the targets: [2, N].
at::Tensor sums_of_all(const Columns& columns, const at::Tensor& logits, const at::Tensor& largest,
                       const at::Tensor& at_target, bool overwrite) {
  if (!columns.blocks.features) {
    at::Tensor sums = at::empty_like(largest);
    exponentials(logits, largest, overwrite, sums);
    return columns.axis.sum(at::stack({sums, at_target}));
  }
  const at::Tensor sums = fold_blocks(
      *columns.blocks.features, largest.sizes(), largest.options(),
      [&](const std::vector<layout::Range>& ranges, at::Tensor& term) {
        exponentials(logits.narrow(1, ranges[0].begin, ranges[0].size()), largest, overwrite, term);
      });
  // At most one rank has a logit, so any of its partial sums may hold it.
  const at::Tensor found = at::zeros_like(sums);
  found[0].copy_(at_target);
  return columns.axis.sum_of_blocks(at::stack({sums, found}, 1));
}

struct CutCrossEntropy : torch::autograd::Function<CutCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given,
                            const at::Tensor& targets, const Columns* columns, bool overwrite) {
    at::Tensor logits = given.detach();
    const auto dtype = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const Targets here = targets_here(targets, columns->begin, logits.size(1));
    const at::Tensor largest = columns->axis.maximum(logits.amax(1).to(dtype));
    const at::Tensor at_target =
        logits.gather(1, here.column).squeeze(1).to(dtype).masked_fill(here.absent, 0);
    const at::Tensor both = sums_of_all(*columns, logits, largest, at_target, overwrite);
    if (overwrite) {
      turn_into_gradient(logits, both[0], here);
      context->saved_data["gradient"] = logits;
    }
    const at::Tensor losses = (both[0].log() + largest - both[1]).masked_fill(here.ignored, 0);
    std::vector<at::Tensor> sums;
    for (const at::Tensor& some :
         losses.split_with_sizes(sizes_of(columns->blocks.rows, losses.size(0)))) {
      sums.push_back(some.sum(at::kDouble).to(dtype));
    }
    return columns->blocks.rows ? at::stack(sums) : sums[0];
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto gradient = context->saved_data["gradient"].toTensor();
    context->saved_data.erase("gradient");
    const double factor = gradients[0].flatten()[0].item<double>();  // of all blocks
    if (factor != 1) gradient.mul_(factor);
    return {gradient, {}, {}, {}};
  }
};

}  // namespace

Typed<Replicated> cross_entropy_sum(const Typed<Features>& logits, const at::Tensor& targets,
                                    const Axis& axis, const Extents& columns,
                                    const ProductBlocks& blocks) {
  const at::Tensor& mine = logits.value();
  if (axis.degree() == 1 && !blocks.features) {
    if (!blocks.rows) return Typed<Replicated>(compute::cross_entropy_sum(mine, targets));
    const Extents sizes = sizes_of(blocks.rows, mine.size(0));
    std::vector<at::Tensor> sums = mine.split_with_sizes(sizes);
    const std::vector<at::Tensor> own = targets.split_with_sizes(sizes);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = compute::cross_entropy_sum(sums[i], own[i]);
    return Typed<Replicated>(at::stack(sums));
  }
  if (static_cast<int>(columns.size()) != axis.degree() || columns[axis.rank()] != mine.size(1)) {
    throw Error(base::invalid_argument(fmt::format(
        "cross_entropy_sum: rank {} of {} has {} columns, and {} extents are given; give the "
        "columns of each rank",
        axis.rank(), axis.degree(), mine.size(1), columns.size())));
  }
  check_targets_of_all(targets, std::accumulate(columns.begin(), columns.end(), int64_t{0}));
  const Columns here{axis, axis.own_range(columns).begin, blocks};
  const bool overwrite = at::GradMode::is_enabled() && mine.requires_grad();
  return Typed<Replicated>(CutCrossEntropy::apply(mine, targets, &here, overwrite));
}

}  // namespace hanji::parallel::tensor
