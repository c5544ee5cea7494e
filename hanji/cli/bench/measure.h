#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hanji/cli/bench/options.h"
#include "hanji/cli/bench/side.h"
#include "hanji/cost/rates.h"
#include "hanji/report/bench_line.h"

namespace hanji::cli {

/// A peer whose runs are interleaved with ours.
struct BenchRival {
  std::string name;
  Side* side = nullptr;  ///< Null: `reason` says why it is not here.
  std::string engine{};  ///< Of gloo, which our own ranks serve.
  std::string reason{};
  bool asked = true;
};

/// Everything that calls are measured with.
struct BenchSides {
  const BenchWish& wish;
  cost::Rates rates{};      ///< That our ranks choose by.
  std::string prices{};     ///< Where these come from.
  int64_t cache_bytes = 0;  ///< Of the last level.
  bool probes = false;      ///< The ranks have processors of their own.
  std::filesystem::path folder{};
  Side* ours = nullptr;
  std::vector<BenchRival> rivals{};
};

/// Measures one call, in every placement and in both forms where it has them.
///
/// First every side makes the call once and its result is compared; then all run interleaved, round
/// after round, forth and back, with the limit kernel and a flag's round trip in every round.
/// Result  a line per placement and form; of a wrong result no time.
/// Errors  kUnsupported for what our engine has not; as Side::ask() for our own ranks. What happens
///         to a peer is a reason in the lines.
Result<std::vector<report::BenchLine>> measure_case(report::BenchCase call, BenchSides& sides);

}  // namespace hanji::cli
