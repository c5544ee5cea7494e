#pragma once

#include <span>
#include <vector>

namespace hanji::cost {

/// One equation: what is used of each unknown, and what it came to.
struct Equation {
  std::vector<double> usage;
  double value = 0;  ///< Above 0.
};

/// The unknowns, none below 0, with the least sum of squared relative errors of all equations.
///
/// Shape   as many unknowns as each usage has members.
/// Result  an unknown that no equation uses is 0. Equations that are far off (measured while the
///         machine did something else) count less in each of a few rounds.
/// Source  coordinate descent on the normal equations: Franc, Hlavac, Navara, "Sequential
///         Coordinate-Wise Algorithm for the Non-negative Least Squares Problem", CAIP 2005;
///         weights: Huber, "Robust Statistics", 1981.
std::vector<double> solve_nonnegative(std::span<const Equation> equations);

/// Usage times unknowns.
double weighted_sum(std::span<const double> usage, std::span<const double> unknowns);

}  // namespace hanji::cost
