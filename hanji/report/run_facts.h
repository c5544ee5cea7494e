#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/report/plan_against_run.h"
#include "hanji/report/run_records.h"
#include "hanji/report/verdict.h"

namespace hanji::report {

/// How fast a run is, by the verdict's step.
struct RunRate {
  double step_seconds = 0;
  double targets_per_second = 0;
  std::string_view targets;     ///< "tokens", "images", "pairs".
  double flops_per_second = 0;  ///< Floating operations of the model's products, of all ranks.
  std::optional<double> of_measured;  ///< products_rate(); absent: no rate was measured.
  std::optional<double>
      of_peak;         ///< The share of the fastest products published of the ranks' devices.
  std::string device;  ///< One of plan::known_devices(); empty: the plan names none of them.
};
/// Absent where no step was measured.
std::optional<RunRate> rate_of(const RunRecords& run, const Verdict& verdict);

/// What an axis moves in a mean step of a rank.
struct AxisFacts {
  std::string axis;
  double calls = 0;
  double bytes = 0;  ///< Bytes of the rank's tensors.
  std::optional<double> exposed_transfer;
  std::optional<double> skew;
  std::optional<double>
      bytes_per_second;     ///< bytes over exposed_transfer; absent if that is 0 or unknown.
  bool is_network = false;  ///< A group of it lies on several hosts.
  double link_bytes_per_second =
      0;  ///< The plan's: of a host's link, else of its memory; 0: not known.
};
std::vector<AxisFacts> axes_of(const RunRecords& run);

/// The mean step of all ranks together, with all axes, calls and waits; the first step warms up. None: no accounts.
std::optional<StepAccount> sum_of_steps(const RunRecords& run);

/// Who waits for whom in a mean step; a rank records its longest waits of each step.
struct WaitFacts {
  int rank = 0;         ///< The one that waits,
  int awaited = 0;      ///< for this one,
  std::string routine;  ///< in calls of this; may be empty.
  double seconds = 0;
};
/// The longest first, at most `most`.
std::vector<WaitFacts> longest_waits(const RunRecords& run, size_t most);

/// What the computing of a rank's mean step consists of. Units: seconds, without waiting in them.
struct ComputeParts {
  int rank = 0;
  double forward = 0, backward = 0, optimizer = 0;
  double other = 0;  ///< What of the computing is none of these.
};
/// Lists the ranks whose accounts tell computing from waiting and have these parts.
std::vector<ComputeParts> compute_parts_of(const RunRecords& run);

/// What checkpoints cost, as the run's summary says.
struct SavingFacts {
  int64_t saves = 0;
  int64_t failed = 0;
  double blocked_median = 0, blocked_longest = 0;  ///< Seconds for which a step waited.
  double written_median = 0;                       ///< Seconds of the disk, beside steps.
};

/// How a run ended; absent members: it has not ended, or its summary does not say.
struct OutcomeFacts {
  bool has_ended = false;
  std::optional<double> train_loss, validation_loss;
  std::optional<int64_t> skipped_steps, steps_without_targets;
  std::optional<SavingFacts> saving;
  std::vector<int64_t> peak_bytes;      ///< Bytes of tensors, by rank; empty: not known.
  std::vector<Comparison> comparisons;  ///< Plan against run; empty: not known.
  std::string last_failure;  ///< What ended the run or an earlier try of it; may be empty.
  std::optional<double> step_seconds;  ///< Median of a step.
};
OutcomeFacts outcome_of(const RunRecords& run);

/// What a certificate of `hanji verify` in the run's folder says.
struct CertificateFacts {
  bool equal = false;
  std::string bits;
  int64_t ranks = 0, steps = 0;
};
std::optional<CertificateFacts> certificate_of(const RunRecords& run);

/// "pp=2,dp=4", or "one rank".
std::string mesh_of(const plan::Plan& plan);

/// One sentence: how ranks, threads, processors and hosts are laid out.
std::string machine_of(const plan::Plan& plan);

}  // namespace hanji::report
