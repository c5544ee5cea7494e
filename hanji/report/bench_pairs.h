#pragma once

#include <optional>
#include <span>
#include <string>

#include "hanji/report/statistics.h"

namespace hanji::report {

/// A flag's round trip may change by this share between two sides of a pair; beyond it the ranks'
/// processors have moved apart or together, and the pair compares two machines.
inline constexpr double kMaxProbeChange = 0.2;

/// Both sides' median in one round, and a flag's round trip before and after it; 0: not probed,
/// because the ranks have no processors of their own.
struct BenchPair {
  double ours = 0;
  double peer = 0;
  double probe_before = 0;
  double probe_after = 0;

  bool is_steady() const;
};

/// What pairs say together.
struct BenchRatio {
  std::optional<double> ratio;  ///< Median of peer / ours; nothing if `reason` says why.
  Interval interval{};          ///< Of that median.
  int wins = 0;                 ///< Pairs in which ours was faster.
  int losses = 0;
  int ties = 0;      ///< Pairs in which a clock could not tell them apart.
  int unsteady = 0;  ///< Pairs that were left out.
  double sign_test = 1;
  std::string reason{};
};

/// Compares the steady pairs. Refuses a ratio where fewer than half of all are.
BenchRatio compare_pairs(std::span<const BenchPair> pairs);

}  // namespace hanji::report
