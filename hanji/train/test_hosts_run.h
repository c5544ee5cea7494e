#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hanji/train/test_job_run.h"

namespace hanji::train {

/// Runs the plan on threads, hosts[h] of them on "host" h of this process, which Gloo joins by loopback.
std::vector<JobRun> run_job_on_hosts(const plan::Plan& plan, const std::vector<int>& hosts,
                                     const Dataset& dataset, const Tampering& tampering = {});

/// Saves in `folder`, each rank its part, and returns the hash of a second job that restores it.
///
/// Order  collective.
std::string hash_restored(const Job& job, const plan::Plan& plan,
                          const std::filesystem::path& folder);

}  // namespace hanji::train
