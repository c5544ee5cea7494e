#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hanji::report {

/// After how many steps two of them say something new of each other, at least 1: the larger of (1 + rho) / (1 - rho)
/// by the correlation rho of neighbours, and of the sum of correlations until they vanish.
///
/// Result  by the ranks of the values, so that a few long steps do not hide it; rho is corrected for its bias, which
///         is -(1 + 4 rho) / n.
/// Cost    n log n, and n for each distance until correlations vanish.
/// Source  Kendall, "Note on bias in the estimation of autocorrelation", Biometrika 41, 1954; Geyer, "Practical Markov
///         chain Monte Carlo", Statistical Science 7(4), 1992 (initial positive sequence).
double correlation_time(std::span<const double> steps);

/// Steps of a block that holds what is correlated: twice the correlation time, at most a fifth of the steps.
size_t block_length(size_t steps, double correlation_time);

/// `count` indices below `count` in blocks of `length` that follow each other, drawn with replacement.
/// Result  the same for the same `key` and `draw` on every machine.
/// Source  moving blocks: Kuensch, "The jackknife and the bootstrap for general stationary observations", Annals of
///         Statistics 17, 1989.
std::vector<size_t> draw_blocks(size_t count, size_t length, uint64_t key, uint64_t draw);

/// How far the median of later steps lies from that of earlier ones.
struct MedianChange {
  double before = 0;
  double after = 0;
  double low = 0;  ///< after - before lies between low and high.
  double high = 0;
  double independent_before = 0;  ///< Steps over their correlation time.
  double independent_after = 0;

  /// Fewer independent steps tell nothing.
  static constexpr double kMinIndependent = 20;
  bool is_told() const;
  bool differs() const { return is_told() && (low > 0 || high < 0); }
};

/// Compares medians of two series whose steps may be correlated; `tests` such comparisons are made at once.
///
/// Result  equal series differ in at most kFalseAlarms of all pairs, for all `tests` together (Bonferroni). The interval
///         is that of Student's t at kNominal, with the variance of medians of resampled blocks and as many degrees of
///         freedom as blocks allow (Welch); kNominal is below kFalseAlarms because the correlation time is itself
///         estimated: of 1,000 equal pairs of 60 to 1,000 steps 1.5 to 3.7 % differ at rho from 0 to 0.9.
/// Cost    some hundred medians of each series.
MedianChange median_change(std::span<const double> before, std::span<const double> after,
                           int tests = 1);
inline constexpr double kFalseAlarms = 0.05;
inline constexpr double kNominal = 0.02;

/// The quantile of Student's t with `freedom` degrees of freedom, at least 2, at `p` from 0.5 to below 1.
/// Result  within 2 % for 4 and more.
/// Source  Abramowitz & Stegun, "Handbook of Mathematical Functions", 26.7.5.
double student_quantile(double p, double freedom);

}  // namespace hanji::report
