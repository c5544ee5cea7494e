#pragma once

#include <vector>

#include "hanji/plan/plan.h"
#include "hanji/report/step_parts.h"

namespace hanji::report {

/// What each rank has to compute as the plan shares it out, over the mean: by samples, and by the layers of its
/// stages of a pipeline.
std::vector<double> planned_work(const plan::Plan& plan);

/// A rank that computes longer than its work and the others of its stage explain.
struct SlowRank {
  size_t index = 0;
  double excess = 0;  ///< What it computes longer; 0.1: it takes 1.1 times as long.
};

/// The ranks whose excess no chance explains, the slowest first.
///
/// Result  of each line, a rank's computing over its planned work, beside the median of the others of its stage (of
///         all ranks where it is alone there, and then only above 5 %, as plans err by that). The median over lines
///         is to be 4.5 of its standard errors above 0, which count how far lines that follow each other are alike.
/// Source  the median's error: 1.2533 sigma / sqrt(n), sigma from the median absolute deviation; n over
///         (1 + rho) / (1 - rho) of the lag-1 correlation.
std::vector<SlowRank> slow_ranks(const plan::Plan& plan, const std::vector<LineParts>& lines);

/// CPU time that a rank lacks for its computing; 0 while it has 90 % of it.
double stolen_seconds(const StepParts& rank);

}  // namespace hanji::report
