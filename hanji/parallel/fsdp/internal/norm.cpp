#include "hanji/parallel/fsdp/internal/norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <cmath>

#include "hanji/comm/host_values.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/gradients/shard_norm.h"

namespace hanji::parallel {
namespace {

/// This rank's partial sums, and -1 in place of each where the parameter has no gradient.
std::vector<double> own_blocks(ShardGradients& gradients) {
  std::vector<double> blocks;
  gradients.for_each_unit(/*changes=*/false, [&](const FlatUnit& unit) {
    for (const Leaf& leaf : unit.leaves()) {
      const int64_t count = layout::num_blocks(leaf.elements.size());
      if (!leaf.tensor.grad().defined()) {
        blocks.insert(blocks.end(), count, -1);
        continue;
      }
      const auto more = norm_blocks(leaf.tensor.grad().reshape({-1}));
      blocks.insert(blocks.end(), more.begin(), more.end());
    }
  });
  return blocks;
}

double norm_on_device(const std::vector<FlatUnit*>& units, const comm::Group& group, uint64_t tag) {
  at::Tensor square = at::full({1}, 0.0, at::kDouble);
  for (const FlatUnit* unit : units) {
    for (const Leaf& leaf : unit->leaves()) {
      if (!leaf.tensor.grad().defined()) continue;
      const double norm = at::linalg_vector_norm(leaf.tensor.grad(), 2, at::OptionalIntArrayRef(),
                                                 false, at::kDouble)
                              .item<double>();
      square += norm * norm;
    }
  }
  comm::all_reduce_on_host(square, group, {.tag = tag, .label = "norms"});
  return std::sqrt(square.item<double>());
}

}  // namespace

double clip_grad_norm(ShardGradients& gradients, const std::vector<FlatUnit*>& units,
                      const comm::Group& group, double max_norm) {
  const at::NoGradGuard no_grad;
  const uint64_t tag = units[0]->part().tag;
  std::vector<const layout::Unit*> plans;
  for (const FlatUnit* unit : units) plans.push_back(&unit->part().plan);
  const double norm = units[0]->part().device.is_cpu()
                          ? norm_of_shards(plans, own_blocks(gradients), group, tag)
                          : norm_on_device(units, group, tag);
  const double divisor = clip_divisor(norm, max_norm);
  if (!std::isfinite(norm) || divisor == 1) return norm;
  gradients.for_each_unit(/*changes=*/true, [&](const FlatUnit& unit) {
    for (const Leaf& leaf : unit.leaves()) {
      if (leaf.tensor.grad().defined()) leaf.tensor.grad().div_(divisor);
    }
  });
  return norm;
}

}  // namespace hanji::parallel
