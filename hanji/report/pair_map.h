#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hanji::report {

/// A value in [0, 1] for every pair of N residues, row by row: what a model finds, and the truth.
struct PairMap {
  int64_t residues = 0;
  std::vector<double> found;
  std::vector<double> truth;
};

/// Draws both in one square: above the diagonal what was found, below it the truth; 1 is dark.
/// Errors  kInvalidArgument unless both have N x N values.
std::string pair_map_svg(const PairMap& map, std::string_view title);

}  // namespace hanji::report
