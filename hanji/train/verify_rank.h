#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "hanji/plan/plan.h"
#include "hanji/train/dataset.h"

namespace hanji::comm {
class Group;
}

namespace hanji::train {

struct VerifyRankOptions {
  std::filesystem::path folder;
  std::optional<int64_t> keep_step = std::nullopt;
  int keep_rank = 0;
};

/// Runs one rank of `hanji verify`: connects to the other ranks, executes the inherited plan, and writes
/// FOLDER/rank.N.json. If it is compared within a bound, the folder has the Reference. `keep_rank` also
/// writes its tensors after `keep_step` steps to FOLDER/rank.N.safetensors.
/// Errors  throws as the job, after notifying all ranks.
void run_verify_rank(const VerifyRankOptions& options);

/// The same for a rank of `group`, the plan's, that has the plan and the workload already.
///
/// Order   collective. Errors: throws as the job.
void observe_into(const VerifyRankOptions& options, const plan::Plan& plan,
                  const Workload& workload, const comm::Group& group);

/// FOLDER/rank.N with an extension.
std::filesystem::path rank_file(const std::filesystem::path& folder, int rank,
                                std::string_view extension);

}  // namespace hanji::train
