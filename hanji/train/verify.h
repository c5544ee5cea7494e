#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hanji/launch/launcher.h"
#include "hanji/report/certificate.h"
#include "hanji/train/dataset.h"

namespace hanji::train {

/// The step and rank whose tensors are kept.
struct Keep {
  int64_t step = 0;
  int rank = 0;
};

/// One run of a side: of the job's plan, or of plan::without_axis().
struct VerifiedRun {
  const plan::Plan& plan;
  std::string without = {};       ///< That axis; empty: the job's plan.
  std::optional<Keep> keep = {};  ///< Write the tensors to `one_process_file` and `rank_file`.
};

/// The two sides that verify() compares; each runs several times.
struct Verified {
  std::function<report::ObservedRun(const VerifiedRun&)> one_process;
  std::function<std::vector<report::ObservedRun>(const VerifiedRun&)> ranks;  ///< By rank.
  std::filesystem::path one_process_file;
  std::function<std::filesystem::path(int rank)> rank_file;
};

/// Runs both and compares them after every step. After a difference, both run without each axis of the
/// mesh, to find those that it lies on, and once more to keep their tensors and compute the distance; a
/// difference that does not repeat has no distance. Of a plan that is compared within a bound the one process
/// writes a Reference, which the ranks read.
/// Errors  throws as the runs, but kInvalidArgument of a run without an axis (a loss that is not finite) is
///         in the certificate.
report::Certificate verify(const plan::Plan& plan, const Verified& verified);

/// Subfolders of the folder of a verification.
inline constexpr std::array kVerifyParts = {"logs", "observed"};

struct VerifyLaunch {
  std::filesystem::path out;  ///< From claim_folder() with kVerifyParts.
  std::function<void(const launch::RankEvent&)> on_event;
};

/// Runs verify() with the plan's one process, in this process, and its ranks, started by the command's
/// hidden verb. Writes plan.json, observed/ and certificate.json to `out`; after a difference observed/
/// also has one_process.safetensors and rank.N.safetensors, for `hanji ckpt diff`, and without_AXIS/.
///
/// Errors  throws as launch() and the one process; the error of a failed rank, or kPeerLost with the
///         launcher's message if the rank left none.
report::Certificate verify_job(const plan::Plan& plan, const Dataset& dataset,
                               const VerifyLaunch& launch);

/// The same for ranks that `run_ranks` runs: each executes observe_into(observed_folder()). Writes no
/// plan.json.
report::Certificate verify_job(const plan::Plan& plan, const Workload& workload,
                               const std::filesystem::path& out,
                               const std::function<void(const VerifiedRun&)>& run_ranks);

/// What a run observed: OUT/observed, or OUT/observed/without_AXIS.
std::filesystem::path observed_folder(const std::filesystem::path& out, const std::string& without);

}  // namespace hanji::train
