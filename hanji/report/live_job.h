#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/report/step_account.h"

namespace hanji::report {

/// What is seen of a rank at one moment.
struct LiveRank {
  int rank = 0;
  std::string state;  ///< "R", "S", "T": the kernel's letter; "dead", "left", "never came".
  int64_t step = -1;  ///< The step that it is in, or has done last; -1: it records none.
  std::string phase;  ///< "forward"; empty: not known.
  std::string call;   ///< "all_reduce, waits 20 ms"; empty: none yet.
  std::optional<int64_t> resident_bytes = {};  ///< Memory of its process.
  std::optional<StepAccount> recent = {};      ///< The sum of its last steps.
};

/// What is seen of a job at one moment.
struct LiveJob {
  std::string name;       ///< Folder or process.
  std::string what;       ///< "gpt, 4 ranks (dp=4)"; empty: not known.
  int64_t num_steps = 0;  ///< Planned; 0: not known.
  std::vector<LiveRank> ranks;
  std::string verdict;  ///< Why it does not go on; empty: it does.
};

/// The sum of the last accounts of a rank that a file of accounts holds, at most `lines` of one run; nothing without any.
/// A line that is being written is left out, and what is no account ends the sum.
/// Cost    reads the last 64 KiB.
std::optional<StepAccount> recent_account(const std::filesystem::path& file, size_t lines = 10);

/// A page of at most `rows` lines: the job, its pace, the verdict, and a row for each rank: step, shares of the step,
/// CPU time, memory, phase, last call. Of ranks that do not fit, those that do not run come first.
std::string live_page(const LiveJob& job, int columns = base::kTerminalColumns, int rows = 40);

}  // namespace hanji::report
