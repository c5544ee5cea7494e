#pragma once

#include <string>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/report/blocks.h"
#include "hanji/report/run_records.h"
#include "hanji/report/step_lines.h"

namespace hanji::report {

/// A decision of the plan that two runs do not share.
struct ConfigurationChange {
  std::string key;  ///< "parallel.data"; "buckets", "waits" and "CPUs of ranks" follow from keys.
  std::string before;
  std::string after;
};

/// Keys and decisions in which two plans differ, without run.out.
std::vector<ConfigurationChange> configuration_changes(const plan::Plan& before,
                                                       const plan::Plan& after);

/// Seconds of a step, or of a part of it, in two runs.
struct PartChange {
  StepPart part = StepPart::kStep;
  int rank = -1;             ///< -1: the mean over ranks.
  std::string axis = {};     ///< Empty: all calls.
  bool is_measured = false;  ///< Both runs tell it.
  MedianChange change = {};
};

/// One of the two: a run, or some of its steps.
struct ComparedRun {
  std::string folder;
  std::string description;  ///< "gpt, 2 ranks (dp=2), float32"
  int64_t first_step = 0;   ///< The first that counts; 0: none.
  int64_t last_step = 0;
  double correlation_time = 1;  ///< Steps that count as one.
  size_t lines = 0;             ///< Lines of steps that count.
  double cpu_share = 1;         ///< cpu_share() of step_lines.h.
};

/// What changed from one run to another.
struct RunComparison {
  ComparedRun before, after;
  bool is_one_run = false;  ///< Two parts of one run, which have one start-up.
  std::vector<ConfigurationChange> configuration;
  std::vector<PartChange> parts;    ///< The step, then what it is divided into.
  std::vector<PartChange> details;  ///< Ranks and axes of parts that differ, if they do themselves.
  bool is_told = false;             ///< There are enough independent steps.
  std::string sentence;             ///< The verdict, for people.
};

/// Compares what is configured, and the medians of steps and of their parts: the step by one comparison, its four parts
/// by four at once, ranks and axes by as many as there are.
///
/// Result  parts of steps are means over ranks in each step, so that ranks of two runs may be of different numbers.
RunComparison compare_runs(const RunRecords& before, const RunRecords& after);

/// At most 40 lines.
std::string comparison_text(const RunComparison& comparison, int columns = base::kTerminalColumns);

/// The format of comparison_json(): raised when a member changes its meaning or goes.
inline constexpr int kComparisonFormat = 1;
std::string comparison_json(const RunComparison& comparison);

/// "longer", "shorter", "alike" where no difference is seen, "not told", "not measured".
std::string_view outcome_of(const PartChange& part);

}  // namespace hanji::report
