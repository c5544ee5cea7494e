#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hanji/report/statistics.h"

namespace hanji::report {

/// Seconds of a step: means over ranks.
struct ScalingStep {
  double compute = 0;   ///< With waiting for samples.
  double transfer = 0;  ///< Moving bytes while nothing is computed.
  double skew = 0;
  double seconds() const { return compute + transfer + skew; }
};

/// One run.
struct ScalingSeries {
  int ranks = 1;
  std::vector<ScalingStep> steps;
};

/// What a number of ranks takes for a step.
struct ScalingPoint {
  int ranks = 1;
  ScalingStep
      step;  ///< The mean of the middle half of all steps, by their seconds: its parts add up.
};

/// Points by ascending ranks, over all runs of as many.
std::vector<ScalingPoint> scaling_points(std::span<const ScalingSeries> runs);

/// What happens to the global batch with more ranks.
enum class BatchRule : uint8_t {
  kFixed,  ///< Strong scaling: ranks share one work.
  kGrows,  ///< Weak scaling: each rank has as much work, whatever their number.
};

/// Seconds of a step of p ranks, each part by its own law:
///
///     compute   serial + shared / p         (kGrows: shared)
///     transfer  latency (p - 1) + volume (p - 1) / p
///     skew      noise sqrt(2 ln p)
///
/// Source  transfer: a ring, 2 (p - 1) (alpha + bytes / (p rate)); skew: the expected maximum of normal values; the sum
///         is the law of Gunther, "Guerrilla Capacity Planning", 2007, with a crosstalk of 0 between ranks.
struct ScalingLaw {
  BatchRule batch = BatchRule::kFixed;
  double serial = 0;
  double shared = 0;
  double latency = 0;
  double volume = 0;
  double noise = 0;

  double compute(double ranks) const;
  double transfer(double ranks) const;
  double skew(double ranks) const;
  double seconds(double ranks) const { return compute(ranks) + transfer(ranks) + skew(ranks); }
  /// Work done per second over that of one rank.
  double speed_up(double ranks) const;
  /// The part of a rank's computing that more ranks do not shorten.
  double serial_share() const;
  /// The speed-up without any communication: 1 / (s + (1 - s) / p) with s = serial_share(), Amdahl's; kGrows: p.
  double bound(double ranks) const;
  /// The number of ranks up to `most` of the shortest step.
  int best_ranks(int most) const;
};

/// The law with the least relative errors, no term below 0.
///
/// `has_parts`  false: computing, transfer and waiting are not told apart, and compute holds all of the step; latency
///              is then fitted with serial and shared.
/// Result  volume is fitted where two or more numbers of ranks move bytes, else latency alone, which promises less.
ScalingLaw fit_scaling(std::span<const ScalingPoint> points, BatchRule batch,
                       bool has_parts = true);

/// The same of runs and steps drawn with replacement: a run of each number of ranks, then blocks of its steps.
/// Result  the same each time. Cost: kLaws times a sort of all steps.
std::vector<ScalingLaw> resampled_laws(std::span<const ScalingSeries> runs, BatchRule batch,
                                       bool has_parts = true);
inline constexpr int kLaws = 400;

/// Between which speed-ups of so many ranks the true one lies with 90 %.
///
/// Result  95 % of the laws': resampled steps vary less than steps do, the more so if they are correlated. Of 300 made
///         sets of 1, 2 and 4 ranks with 120 steps each, 89 to 98 % hold the truth, at correlations of 0 and 0.6, in 1 to
///         3 runs.
Interval speed_up_interval(std::span<const ScalingLaw> laws, int ranks);

}  // namespace hanji::report
