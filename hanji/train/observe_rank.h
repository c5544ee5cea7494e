#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "hanji/train/dataset.h"
#include "hanji/train/job.h"
#include "hanji/train/observe.h"
#include "hanji/train/step.h"
#include "hanji/world/world.h"

namespace hanji::train {

/// What a rank runs under observation: what it trains with, unless a test breaks it to see whether
/// verify finds out.
struct ObservedParts {
  std::function<Job(const plan::Plan&, const comm::Group&)> assemble =
      [](const plan::Plan& plan, const comm::Group& group) { return train::assemble(plan, group); };
  Step step = run_step;
};

/// This rank's way through all steps of the plan, as `hanji train` goes it: the same job, loop and
/// step over `group`. Nothing is logged or saved.
///
/// Order   collective. Errors: throws what the job throws.
report::ObservedRun observe_rank(const plan::Plan& plan, const Dataset& dataset,
                                 const comm::Group& group, const ObserveOptions& options = {},
                                 const ObservedParts& parts = {});

struct VerifyRankOptions {
  std::filesystem::path folder;
  std::optional<int64_t> keep_step = std::nullopt;
  int keep_rank = 0;
};

/// All that one rank of `hanji verify` does: meets the others, follows the inherited plan, and
/// leaves FOLDER/rank.N.json. `keep_rank` leaves its tensors after `keep_step` steps, too, in
/// FOLDER/rank.N.safetensors.
/// Errors  throws what the job throws; all ranks are told before.
void run_verify_rank(const VerifyRankOptions& options);

/// FOLDER/rank.N with an extension.
std::filesystem::path rank_file(const std::filesystem::path& folder, int rank,
                                std::string_view extension);

}  // namespace hanji::train
