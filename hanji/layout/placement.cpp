#include "hanji/layout/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace hanji::layout {
namespace {

int64_t num_units(int64_t size, int64_t unit) { return std::max<int64_t>(1, size / unit); }

Range own_blocks(int blocks, int index, int degree) {
  const int each = blocks / degree, rest = blocks % degree;
  const int begin = index * each + std::min(index, rest);
  return {begin, begin + each + (index < rest ? 1 : 0)};
}

/// Greedy from the left; on a mismatch the last "*" takes one character more.
bool fits(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

std::vector<Range> block_owners(int blocks, int degree) {
  std::vector<Range> owners;
  for (int index = 0; index < degree; ++index) owners.push_back(own_blocks(blocks, index, degree));
  return owners;
}

int largest_part(int degree, int blocks) {
  return blocks > 1 && blocks % degree != 0 ? 0 : degree - 1;
}

Range part_of(int64_t size, int64_t unit, int index, int degree, int blocks) {
  if (blocks > 1) {
    const Range own = own_blocks(blocks, index, degree);
    return {part_of(size, unit, static_cast<int>(own.begin), blocks).begin,
            part_of(size, unit, static_cast<int>(own.end) - 1, blocks).end};
  }
  const int64_t units = num_units(size, unit);
  const auto start = [&](int64_t rank) {
    return rank == degree ? size : std::min(size, rank * units / degree * unit);
  };
  return {start(index), start(index + 1)};
}

Result<std::vector<Range>> parts_of(const Placement& placement, int64_t size, int index,
                                    int degree) {
  const int blocks = placement.blocks;
  if (blocks > 1 && blocks < degree) {
    return base::invalid_argument(fmt::format(
        "{} ranks share {} blocks of features: at most {} ranks can", degree, blocks, blocks));
  }
  std::vector<int64_t> segments = placement.segments;
  if (segments.empty()) segments = {size};
  if (std::accumulate(segments.begin(), segments.end(), int64_t{0}) != size) {
    return base::invalid_argument(fmt::format(
        "segments [{}] do not make up a dimension of {}; give the sizes of what is cut one by one",
        fmt::join(segments, ", "), size));
  }
  const int64_t shortest = std::max<int64_t>(1, *std::ranges::min_element(segments));
  std::vector<Range> parts;
  int64_t begin = 0;
  for (const int64_t segment : segments) {
    const int64_t unit = placement.unit * std::max<int64_t>(1, segment / shortest);
    const int64_t units = segment / unit;
    if (units < std::max(degree, blocks)) {
      const auto [number, what] =
          blocks > 1 ? std::pair(blocks, "blocks") : std::pair(degree, "ranks");
      return base::invalid_argument(
          fmt::format("{} {} share {} units of {} in a segment of {}: at most {} {} can", number,
                      what, units, unit, segment, units, what));
    }
    const Range part = part_of(segment, unit, index, degree, blocks);
    parts.push_back({begin + part.begin, begin + part.end});
    begin += segment;
  }
  return parts;
}

Result<Placement> placement_of(const PlacementTable& table, std::string_view parameter) {
  for (const NamedPlacement& named : table) {
    if (fits(named.pattern, parameter)) return named.placement;
  }
  std::vector<std::string> patterns;
  for (const NamedPlacement& named : table) patterns.push_back("\"" + named.pattern + "\"");
  return base::not_found(fmt::format(
      "parameter {} has no placement; add a pattern that fits its name to {}", parameter,
      patterns.empty() ? "the table, which is empty"
                       : fmt::format("{}", fmt::join(patterns, ", "))));
}

}  // namespace hanji::layout
