#include "hanji/cost/triangle.h"

#include <algorithm>
#include <tuple>

namespace hanji::cost {
namespace {

using layout::AxialBlock;
using layout::TriangleWay;
using schedule::Routine;

/// Elements of the products alone, of all ranks.
int64_t moved_elements(const AxialBlock& block) {
  int64_t sum = 0;
  for (const layout::AxialMove& move : layout::axial_moves(block)) {
    if (move.what == "operands") sum += move.forward + move.backward;
  }
  return sum;
}

/// Of one way's collectives, `pair` bytes in a pair tensor.
double seconds_of_way(TriangleWay way, int64_t pair, int ranks, const SecondsOf& seconds_of) {
  switch (way) {
    case TriangleWay::
        kGather:  // outgoing gathers and scatters a sum in backward, incoming inversely
      return 2 *
             (seconds_of(Routine::kAllGather, pair) + seconds_of(Routine::kReduceScatter, pair));
    case TriangleWay::kRing: {
      // Forward p - 1 steps each; backward of outgoing passes operands and sums, p - 1 and p steps. In each step a
      // rank sends its part of a pair, as in an all_to_all of this size.
      const int steps = 5 * ranks - 4;
      return steps * seconds_of(Routine::kAllToAll, pair / (ranks - 1));
    }
    case TriangleWay::kChannels:
    case TriangleWay::kAuto: break;
  }
  // Two operands and a product there and back.
  return 4 * (seconds_of(Routine::kAllToAll, 2 * pair / ranks) +
              seconds_of(Routine::kAllToAll, pair / ranks));
}

}  // namespace

std::vector<TriangleCost> compare_triangles(AxialBlock block, int64_t element_bytes,
                                            const SecondsOf& seconds_of) {
  const int64_t pair = block.residues * block.residues * block.width * element_bytes;
  std::vector<TriangleCost> ways;
  for (const TriangleWay way : {TriangleWay::kChannels, TriangleWay::kRing, TriangleWay::kGather}) {
    block.triangle = way;
    ways.push_back({.way = way,
                    .moved_bytes = moved_elements(block) * element_bytes,
                    .kept_bytes = way == TriangleWay::kGather ? pair : 0,
                    .passing_bytes = layout::triangle_elements(block) * element_bytes,
                    .seconds = seconds_of_way(way, pair, block.ranks, seconds_of)});
  }
  std::ranges::stable_sort(ways, {}, [](const TriangleCost& one) {
    return std::tuple(one.seconds, one.moved_bytes, one.kept_bytes + one.passing_bytes);
  });
  return ways;
}

TriangleWay cheapest_triangle(const std::vector<TriangleCost>& ways, int64_t blocks,
                              int64_t free_bytes) {
  const auto channels = std::ranges::find(ways, TriangleWay::kChannels, &TriangleCost::way);
  for (const TriangleCost& one : ways) {
    const int64_t more = blocks * one.kept_bytes + one.passing_bytes - channels->passing_bytes;
    if (more <= free_bytes) return one.way;
  }
  return TriangleWay::kChannels;
}

}  // namespace hanji::cost
