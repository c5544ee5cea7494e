#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hanji/data/internal/draws.h"

/// Distances between the residues of a random chain in space, of which some are known.
namespace hanji::data::internal {

/// Of a distance: bins of 3 angstrom, the last one open.
inline constexpr int64_t kDistanceClasses = 15;

/// A persistent random walk with steps of 3.8 angstrom, the length between two residues of a protein.
///
/// Shape   both N x N and symmetric: the class of each distance, and 1 + the class where it is known, else 0.
///         Known are those of neighbours, and a quarter of the others.
void draw_distances(int64_t residues, Draws& draws, std::span<int64_t> known,
                    std::span<int64_t> classes);

/// Of each pair the class in the middle between its bounds by the triangle inequality: the shortest path
/// over known distances, and the largest difference between a known one and a path. Known classes stay.
/// Cost    O(N^3).
std::vector<int64_t> classes_between_bounds(int64_t residues, std::span<const int64_t> known);

}  // namespace hanji::data::internal
