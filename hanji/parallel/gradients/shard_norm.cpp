#include "hanji/parallel/gradients/shard_norm.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "hanji/comm/all_gather.h"
#include "hanji/parallel/grad_norm.h"

namespace hanji::parallel {
namespace {

/// A partial sum: its parameter of registration, its place in that, its value.
struct NormBlock {
  int64_t parameter = 0;
  int64_t place = 0;
  double sum = 0;

  bool operator<(const NormBlock &other) const {
    return std::pair(parameter, place) < std::pair(other.parameter, other.place);
  }
};

/// What a rank's shards have, the sums still to come.
std::vector<NormBlock> blocks_of(std::span<const layout::Unit *const> units, int rank) {
  std::vector<NormBlock> found;
  for (const layout::Unit *unit : units) {
    for (const layout::Piece &piece : layout::pieces(*unit, rank)) {
      const int64_t first = piece.elements.begin / layout::kShardBlock;
      for (int64_t i = 0; i < layout::num_blocks(piece.elements.size()); ++i) {
        found.push_back({unit->parameters[piece.position], first + i});
      }
    }
  }
  return found;
}

}  // namespace

double norm_of_shards(std::span<const layout::Unit *const> units, const std::vector<double> &mine,
                      const comm::Group &group, uint64_t tag) {
  std::vector<NormBlock> blocks;
  std::vector<int64_t> counts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto more = blocks_of(units, rank);
    counts.push_back(std::ssize(more));
    blocks.insert(blocks.end(), more.begin(), more.end());
  }
  const at::Tensor input = at::empty({std::ssize(mine)}, at::kDouble);
  std::ranges::copy(mine, input.mutable_data_ptr<double>());
  at::Tensor all = at::empty({std::ssize(blocks)}, at::kDouble);
  comm::all_gather(all, input, counts, group, {.tag = tag, .label = "norms"}).wait();
  const double *next = all.const_data_ptr<double>();
  for (NormBlock &block : blocks) block.sum = *next++;
  if (!std::is_sorted(blocks.begin(), blocks.end())) std::stable_sort(blocks.begin(), blocks.end());
  std::vector<double> sums;
  for (const NormBlock &block : blocks) {
    if (!(block.sum < 0)) sums.push_back(block.sum);
  }
  return norm_of_blocks(sums);
}

}  // namespace hanji::parallel
