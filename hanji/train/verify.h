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

/// Where one of the ranks is asked to leave its tensors.
struct Keep {
  int64_t step = 0;
  int rank = 0;
};

/// The two runs that verify() holds against each other; each can be asked for again. With `keep`,
/// the tensors after that step lie in `one_process_file` and `rank_file` afterwards.
struct Verified {
  std::function<report::ObservedRun(std::optional<Keep>)> one_process;
  std::function<std::vector<report::ObservedRun>(std::optional<Keep>)> ranks;  ///< By rank.
  std::filesystem::path one_process_file;
  std::function<std::filesystem::path(int rank)> rank_file;
};

/// Runs both and compares them after every step. At a difference, both are run once more to keep
/// their tensors and measure how far they are apart; a difference that does not repeat has no
/// distance.
/// Errors  throws what the runs throw.
report::Certificate verify(const plan::Plan& plan, const Verified& verified);

/// The folders in the folder of a verification.
inline constexpr std::array kVerifyParts = {"logs", "observed"};

struct VerifyLaunch {
  std::filesystem::path out;  ///< From claim_folder() with kVerifyParts.
  std::function<void(const launch::RankEvent&)> on_event;
};

/// verify() of the plan's one process, run here, and its ranks, started through the command's
/// hidden verb. Leaves plan.json, observed/ and certificate.json in `out`; at a difference observed/
/// has one_process.safetensors and rank.N.safetensors too, for `hanji ckpt diff`.
///
/// Errors  throws those of launch() and of the one process; a failed rank's own, or kPeerLost with
///         the launcher's word where it left none.
report::Certificate verify_job(const plan::Plan& plan, const Dataset& dataset,
                               const VerifyLaunch& launch);

}  // namespace hanji::train
