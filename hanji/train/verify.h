#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
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

/// The two runs that verify() compares; each can be repeated. With `keep`,
/// the tensors after that step are written to `one_process_file` and `rank_file`.
struct Verified {
  std::function<report::ObservedRun(std::optional<Keep>)> one_process;
  std::function<std::vector<report::ObservedRun>(std::optional<Keep>)> ranks;  ///< By rank.
  std::filesystem::path one_process_file;
  std::function<std::filesystem::path(int rank)> rank_file;
};

/// Runs both and compares them after every step. After a difference, both run once more to keep their
/// tensors and compute the distance; a difference that does not repeat has no distance.
/// Errors  throws as the runs.
report::Certificate verify(const plan::Plan& plan, const Verified& verified);

/// Subfolders of the folder of a verification.
inline constexpr std::array kVerifyParts = {"logs", "observed"};

struct VerifyLaunch {
  std::filesystem::path out;  ///< From claim_folder() with kVerifyParts.
  std::function<void(const launch::RankEvent&)> on_event;
};

/// Runs verify() with the plan's one process, in this process, and its ranks, started by the command's
/// hidden verb. Writes plan.json, observed/ and certificate.json to `out`; after a difference observed/
/// also has one_process.safetensors and rank.N.safetensors, for `hanji ckpt diff`.
///
/// Errors  throws as launch() and the one process; the error of a failed rank, or kPeerLost with the
///         launcher's message if the rank left none.
report::Certificate verify_job(const plan::Plan& plan, const Dataset& dataset,
                               const VerifyLaunch& launch);

/// The same for ranks that `run_ranks` runs: each executes observe_into(OUT/observed). Writes no
/// plan.json.
report::Certificate verify_job(const plan::Plan& plan, const Workload& workload,
                               const std::filesystem::path& out,
                               const std::function<void(std::optional<Keep>)>& run_ranks);

}  // namespace hanji::train
