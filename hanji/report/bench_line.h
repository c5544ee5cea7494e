#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/report/bench_case.h"
#include "hanji/report/bench_pairs.h"
#include "hanji/report/bench_request.h"

namespace hanji::report {

/// One peer beside a line.
struct BenchPeer {
  std::string name;
  std::vector<double> seconds{};  ///< One per call; empty: `reason` says why not.
  BenchRatio ratio{};
  std::string reason{};
  bool asked = true;  ///< False: only JSON has it, with the reason.
};

/// What was measured of one call on one engine, with tensors in one place.
struct BenchLine {
  BenchCase call;
  std::string engine;
  std::string algorithm;
  BenchPlacement placement = BenchPlacement::kHeap;
  std::vector<double> seconds;              ///< One per call; empty if a result was wrong.
  std::vector<double> round_medians;        ///< Of `seconds`, in the order of measurement.
  std::optional<double> predicted_seconds;  ///< Nothing where no price is known.
  std::string predicted_by = {};            ///< Where that comes from.
  std::optional<double> percent_of_limit;   ///< Nothing where no bytes move.
  std::optional<int64_t> wrong;             ///< Elements; nothing if nobody looked.
  double probe_seconds = 0;                 ///< A flag's round trip; 0: not measured.
  std::vector<BenchPeer> peers;
};

/// One JSON object in one line, for programs.
std::string to_json(const BenchLine& line);

/// `text` as a comment among the rows, in lines of at most `columns`.
std::string bench_note(const std::string& text, int columns);

/// The names of the columns of bench_rows().
std::string bench_heading(schedule::Routine routine, int columns = base::kTerminalColumns);
/// Lines of one call, placements and both forms, for people: nccl-tests' columns, out of place and
/// then in place where the routine has both, below each other where a row has more than `columns`.
/// Peers follow, each as a bench_note().
/// Order   the forms of one placement follow each other.
std::string bench_rows(const std::vector<BenchLine>& lines, int columns = base::kTerminalColumns);

}  // namespace hanji::report
