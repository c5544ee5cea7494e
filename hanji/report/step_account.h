#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/trace/recorder.h"

namespace hanji::report {

/// Calls of one routine in some steps of a rank.
struct CallAccount {
  std::string routine;
  int64_t count = 0;
  int64_t bytes = 0;   ///< Bytes of this rank's tensors.
  double seconds = 0;  ///< From each call to its result, beside other work.
  bool operator==(const CallAccount&) const = default;
};

/// Waiting for one rank in calls of one routine.
struct WaitAccount {
  std::string routine;  ///< Empty: not known.
  int rank = 0;         ///< Who came last, among all ranks.
  double seconds = 0;
  bool operator==(const WaitAccount&) const = default;
};

/// What the calls of an axis cost a rank.
struct AxisAccount {
  std::string axis;  ///< "dp", "tp", "pp"; "data" for ranks that add up gradients.
  int64_t calls = 0;
  int64_t bytes = 0;
  std::optional<double> exposed_transfer = {};  ///< Absent where the engine does not tell.
  std::optional<double> skew = {};
  bool operator==(const AxisAccount&) const = default;
};

/// What a rank did in one step, or in several that follow each other: sums over them, in seconds of this rank.
struct StepAccount {
  int64_t step = 0;  ///< The last of them, counted from 1.
  int64_t steps = 1;
  double seconds = 0;
  double data = 0;  ///< Waiting for samples.
  /// Between begin and end of these parts, without waiting for other ranks in them.
  double forward = 0, backward = 0, optimizer = 0;
  std::optional<double> transfer =
      {};  ///< Absent where the engine does not tell transfer from skew.
  std::optional<double> exposed_transfer = {};
  std::optional<double> skew = {};
  double cpu = 0;            ///< CPU time of all threads of the process.
  int64_t major_faults = 0;  ///< Pages that came from a disk while the process waited.
  int64_t samples = 0;  ///< Samples that its threads have read meanwhile, also for later steps,
  double reading = 0;   ///< in so many seconds, one thread after the other;
  std::optional<double> fetching =
      {};                    ///< of it, until their bytes were there. Absent: not told apart.
  int64_t memory_bytes = 0;  ///< Bytes of tensors, after the last step.
  std::vector<AxisAccount> axes = {};
  std::vector<CallAccount> calls = {};
  std::vector<WaitAccount> waits = {};  ///< The longest first, at most kMaxWaits.
  bool operator==(const StepAccount&) const = default;
};

inline constexpr size_t kMaxWaits = 6;

/// The files of accounts in the folder of a run: their format, folder and names.
inline constexpr int kAccountFormat = 1;
inline constexpr std::string_view kAccountFolder = "steps";
std::filesystem::path account_file(int rank);

/// The step without waiting for samples, for other ranks and for bytes; nothing where the engine does not tell.
std::optional<double> compute_seconds(const StepAccount& account);

/// Adds a later account: sums, and the step and memory of the later one.
void add(StepAccount& sum, const StepAccount& later);

/// Fills forward, backward, optimizer, calls and waits from the events that `recorder` has had since `ticket`.
///
/// Result  the ticket for the next step. A wait belongs to the call that ends after it on the same group.
/// Cost    about 0.1 us an event.
uint64_t add_events(StepAccount& account, const trace::Recorder& recorder, uint64_t ticket);

/// One line of JSON without a line break: some hundred bytes.
std::string to_json(const StepAccount& account);
/// Errors  corrupt, naming the member.
Result<StepAccount> step_account_from_json(std::string_view line);

}  // namespace hanji::report
