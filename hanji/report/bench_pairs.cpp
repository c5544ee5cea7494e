#include "hanji/report/bench_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "hanji/base/units.h"

namespace hanji::report {
namespace {

std::string why_refused(std::span<const BenchPair> pairs, int unsteady) {
  double least = pairs[0].probe_before;
  double most = least;
  for (const BenchPair& pair : pairs) {
    least = std::min({least, pair.probe_before, pair.probe_after});
    most = std::max({most, pair.probe_before, pair.probe_after});
  }
  return fmt::format(
      "no ratio: in {} of {} a flag's round trip moved by more than {:.0f} % ({} to {}); "
      "measure again on a quieter machine",
      unsteady, base::counted(pairs.size(), "pair"), 100 * kMaxProbeChange,
      base::format_seconds(least), base::format_seconds(most));
}

}  // namespace

bool BenchPair::is_steady() const {
  const auto [least, most] = std::minmax(probe_before, probe_after);
  return most <= least * (1 + kMaxProbeChange);
}

BenchRatio compare_pairs(std::span<const BenchPair> pairs) {
  BenchRatio result;
  std::vector<double> ratios;
  for (const BenchPair& pair : pairs) {
    if (!pair.is_steady()) {
      ++result.unsteady;
      continue;
    }
    ratios.push_back(pair.peer / pair.ours);
    result.wins += pair.ours < pair.peer;
    result.losses += pair.ours > pair.peer;
    result.ties += pair.ours == pair.peer;
  }
  if (pairs.empty()) {
    result.reason = "no ratio: no pair was measured";
  } else if (2 * ratios.size() < pairs.size()) {
    result.reason = why_refused(pairs, result.unsteady);
  } else {
    result.ratio = median(ratios);
    result.interval = median_interval(ratios);
    result.sign_test = sign_test(result.wins, result.losses);
  }
  return result;
}

}  // namespace hanji::report
