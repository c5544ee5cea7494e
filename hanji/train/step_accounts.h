#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hanji/plan/plan.h"
#include "hanji/report/step_account.h"
#include "hanji/topology/cpu_load.h"
#include "hanji/trace/jsonl.h"
#include "hanji/train/job.h"
#include "hanji/train/loop.h"

namespace hanji::train {

/// Writes what one rank did in each step to OUT/steps/rank.N.jsonl, for `hanji report`.
///
/// A line is written when its steps have ended, so a killed run keeps those before. The first kLines lines have one
/// step each, the next kLines two, then four and so on: a file grows with the logarithm of the number of steps.
/// A failed write does not end the training: it is told once, and nothing more is written.
class StepAccounts {
 public:
  static constexpr int64_t kLines = 4096;

  /// Appends to the file of an earlier run that ended after `first_step` steps or later.
  /// `tell`: receives why nothing more is written.
  StepAccounts(const Job& job, const plan::Plan& plan, const std::filesystem::path& out,
               int64_t first_step, std::function<void(const std::string&)> tell);

  /// Just before a step.
  void begin();
  /// After it. Cost: some microseconds and one write(2).
  void end(int64_t steps_done, const StepSeconds& seconds, int64_t memory_bytes);
  /// Writes steps that are kept for a line of several.
  void flush();

 private:
  struct AxisStats {
    std::string axis;
    comm::Stats stats;
  };

  std::vector<AxisStats> stats_of_axes() const;
  std::vector<report::AxisAccount> axes_since_begin() const;
  void write(const std::string& line);
  void give_up(const Status& status);

  const Job& job_;
  std::string cut_axis_;
  std::optional<trace::JsonlWriter> writer_;
  std::function<void(const std::string&)> tell_;
  std::vector<AxisStats> before_;
  topology::OwnUse used_before_;
  uint64_t ticket_ = 0;
  std::optional<report::StepAccount> kept_;
  int64_t lines_ = 0, steps_per_line_ = 1;
};

/// Copies to the first rank's folder the accounts of ranks whose files do not lie there, as on other hosts.
///
/// Order   collective, at the end of a run, after flush(); a run that fails leaves them where they are.
/// Cost    one call of all accounts' bytes: some hundred a step and rank.
/// Errors  throws those of the calls. A file that cannot be read or written is left out, as a report then says.
void gather_accounts(const comm::Group& group, const std::filesystem::path& out);

}  // namespace hanji::train
