#include "hanji/layout/unit.h"

#include <algorithm>
#include <utility>

namespace hanji::layout {
namespace {

/// Where a parameter's place ends, its padding included.
int64_t place_end(const FlatLayout& flat, size_t position) {
  return position + 1 < flat.offsets.size() ? flat.offsets[position + 1] : flat.count;
}

/// The place nearest to `ideal` where a shard may end.
int64_t nearest_end(const FlatLayout& flat, int64_t ideal, int64_t block) {
  const auto after = std::upper_bound(flat.offsets.begin(), flat.offsets.end(), ideal);
  if (after == flat.offsets.begin()) return 0;
  const size_t position = after - flat.offsets.begin() - 1;
  const int64_t lower = ideal - (ideal - flat.offsets[position]) % block;
  const int64_t upper = std::min(lower + block, place_end(flat, position));
  return ideal - lower <= upper - ideal ? lower : upper;
}

}  // namespace

std::vector<Range> cut_near(const FlatLayout& flat, std::span<const int64_t> ends, int64_t block) {
  std::vector<Range> ranges;
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const bool last = i + 1 == ends.size();
    const int64_t end = last ? flat.count : nearest_end(flat, ends[i], block);
    ranges.push_back({begin, std::max(begin, end)});
    begin = ranges.back().end;
  }
  return ranges;
}

std::vector<Range> cut_shards(const FlatLayout& flat, int ranks, int64_t block) {
  std::vector<int64_t> ends;
  for (int rank = 1; rank <= ranks; ++rank) {
    // count * rank / ranks, without a product that might overflow.
    ends.push_back(flat.count / ranks * rank +
                   flat.count % ranks * static_cast<int64_t>(rank) / ranks);
  }
  return cut_near(flat, ends, block);
}

Unit make_unit(std::vector<int> parameters, std::span<const int64_t> sizes, int ranks) {
  std::vector<int64_t> own;
  for (const int index : parameters) own.push_back(sizes[index]);
  Unit unit{std::move(parameters), flat_layout(own), {}};
  unit.shards = cut_shards(unit.flat, ranks);
  return unit;
}

std::vector<Piece> pieces(const Unit& unit, int rank) {
  const Range shard = unit.shards[rank];
  std::vector<Piece> found;
  for (size_t i = 0; i < unit.flat.offsets.size(); ++i) {
    const int64_t offset = unit.flat.offsets[i];
    const int64_t begin = std::max(offset, shard.begin);
    const int64_t end = std::min(offset + unit.flat.sizes[i], shard.end);
    if (begin < end) found.push_back({static_cast<int>(i), {begin - offset, end - offset}, begin});
  }
  return found;
}

std::vector<int64_t> shard_counts(const Unit& unit) {
  std::vector<int64_t> counts;
  for (const Range& shard : unit.shards) counts.push_back(shard.size());
  return counts;
}

std::vector<int64_t> block_counts(const Unit& unit) {
  std::vector<int64_t> counts(unit.shards.size());
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    for (const Piece& piece : pieces(unit, static_cast<int>(rank))) {
      counts[rank] += num_blocks(piece.elements.size());
    }
  }
  return counts;
}

std::vector<std::vector<int>> group_by_size(std::span<const int64_t> sizes, int64_t elements,
                                            const std::vector<int>& alone) {
  std::vector<std::vector<int>> groups;
  for (const int index : alone) groups.push_back({index});
  int64_t held = elements;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int index = static_cast<int>(i);
    if (std::ranges::find(alone, index) != alone.end()) continue;
    if (held >= elements) {
      groups.emplace_back();
      held = 0;
    }
    groups.back().push_back(index);
    held += sizes[i];
  }
  return groups;
}

}  // namespace hanji::layout
