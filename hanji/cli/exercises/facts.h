#pragma once

#include <filesystem>

#include "hanji/base/status.h"
#include "hanji/cli/exercises/command_runner.h"
#include "hanji/cli/exercises/judges.h"

namespace hanji::cli {

// What checks find out: by measuring again, or in the files that a script left in `folder`.

/// Cost    some seconds.
/// Errors  throws Error where a measurement fails.
LinkFacts measure_links(const std::filesystem::path& folder, CommandRunner& runner);

/// Errors  as report::read_run(); kNotFound without a summary: the run has not ended.
Result<HybridFacts> read_hybrid_facts(const std::filesystem::path& folder);
Result<OverheadFacts> read_overhead_facts(const std::filesystem::path& folder);
/// A file that cannot be read is one of the facts.
Result<ImagesFacts> read_images_facts(const std::filesystem::path& folder);

}  // namespace hanji::cli
