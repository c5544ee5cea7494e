#pragma once

#include <string>

#include "hanji/cli/bench/options.h"
#include "hanji/launch/launcher.h"

namespace hanji::cli {

/// How the ranks of a peer are started, so that they serve the pipes in a folder.
///
/// `name` is openmpi, mpich or pytorch; gloo is served by our own ranks.
/// Errors  kNotFound, what is missing: the launcher, or the program that was not built.
Result<launch::LaunchOptions> peer_launch(const std::string& name, const BenchWish& wish,
                                          const std::string& python,
                                          const std::filesystem::path& folder, int usable_cores);

}  // namespace hanji::cli
