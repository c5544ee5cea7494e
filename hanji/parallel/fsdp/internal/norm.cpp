#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>

#include "hanji/base/status.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/host_values.h"
#include "hanji/parallel/fsdp/internal/sharded_model.h"
#include "hanji/parallel/grad_norm.h"

namespace hanji::parallel {
namespace {

/// Where the partial sums of every rank belong: by rank, one entry per piece of its shards.
struct Place {
  int64_t parameter = 0;  ///< Of registration.
  int64_t first_block = 0;
  int64_t num_blocks = 0;
};

std::vector<Place> places(const std::vector<FlatUnit*>& units, int rank) {
  std::vector<Place> found;
  for (const FlatUnit* unit : units) {
    for (const layout::Piece& piece : layout::pieces(unit->plan(), rank)) {
      found.push_back({unit->plan().parameters[piece.position],
                       piece.elements.begin / layout::kShardBlock,
                       layout::num_blocks(piece.elements.size())});
    }
  }
  return found;
}

/// This rank's partial sums, and -1 in place of each where the parameter has no gradient.
std::vector<double> own_blocks(Gradients& gradients) {
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

/// The partial sums of all ranks, those of each parameter in order of registration.
double norm_on_cpu(const std::vector<FlatUnit*>& units, std::vector<double> mine,
                   const comm::Group& group) {
  std::vector<std::vector<Place>> by_rank;
  std::vector<int64_t> counts;
  for (int rank = 0; rank < group.size(); ++rank) {
    by_rank.push_back(places(units, rank));
    int64_t count = 0;
    for (const Place& place : by_rank.back()) count += place.num_blocks;
    counts.push_back(count);
  }
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  const at::Tensor input = at::empty({static_cast<int64_t>(mine.size())}, at::kDouble);
  std::ranges::copy(mine, input.mutable_data_ptr<double>());
  at::Tensor all = at::empty({total}, at::kDouble);
  comm::all_gather(all, input, counts, group, {.label = "norms"}).wait();

  std::vector<std::tuple<int64_t, int64_t, double>> ordered;
  const double* next = all.const_data_ptr<double>();
  for (const auto& own : by_rank) {
    for (const Place& place : own) {
      for (int64_t i = 0; i < place.num_blocks; ++i) {
        ordered.emplace_back(place.parameter, place.first_block + i, *next++);
      }
    }
  }
  std::ranges::stable_sort(ordered, [](const auto& a, const auto& b) {
    return std::pair(std::get<0>(a), std::get<1>(a)) < std::pair(std::get<0>(b), std::get<1>(b));
  });
  std::vector<double> sums;
  for (const auto& [parameter, block, sum] : ordered) {
    if (!(sum < 0)) sums.push_back(sum);
  }
  return norm_of_blocks(sums);
}

double norm_on_device(const std::vector<FlatUnit*>& units, const comm::Group& group) {
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
  comm::all_reduce_on_host(square, group, {.label = "norms"});
  return std::sqrt(square.item<double>());
}

}  // namespace

double ShardedModel::clip_grad_norm(double max_norm) {
  const at::NoGradGuard no_grad;
  const bool on_cpu = learning_[0]->device().is_cpu();
  const double norm = on_cpu ? norm_on_cpu(learning_, own_blocks(*gradients_), group_)
                             : norm_on_device(learning_, group_);
  const double divisor = clip_divisor(norm, max_norm);
  if (!std::isfinite(norm) || divisor == 1) return norm;
  gradients_->for_each_unit(/*changes=*/true, [&](const FlatUnit& unit) {
    for (const Leaf& leaf : unit.leaves()) {
      if (leaf.tensor.grad().defined()) leaf.tensor.grad().div_(divisor);
    }
  });
  return norm;
}

}  // namespace hanji::parallel
