#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/env.h"
#include "hanji/base/status.h"

namespace hanji::launch {

/// Who started this process.
enum class Source { kAlone, kHanji, kTorchrun, kMpirun, kSrun };

/// The command's name, or "alone".
std::string_view name_of(Source source);

/// Who this process is among those started together.
struct Identity {
  Source source = Source::kAlone;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< Index within this host.
  int local_size = 1;  ///< Ranks on this host; less than world_size on several hosts.
  int node = 0;        ///< Index of this host; -1: nobody tells.
  int num_nodes = 1;   ///< Hosts; 0: several, nobody tells how many.
  /// Differs between jobs and between restarts of one job; equal on all ranks. Empty if alone or
  /// started by hanji, which need not search for each other.
  std::string job_id = {};
};

/// Where variables come from: base::read, or a table in tests.
using Lookup = std::function<std::optional<std::string>(base::Variable)>;

/// Reads the launcher's variables. A launcher that started one process only yields to any other,
/// so `srun -n1 torchrun ...` and a batch script's own task are no contradiction.
///
/// Errors  kInvalidArgument, every variable shown, if a launcher's set is incomplete, not a number
///         or out of range, or if two launchers tell different ranks.
Result<Identity> detect(const Lookup& lookup = base::read);

/// The variables that say who a process is. A launcher replaces or removes all of them.
const std::vector<base::Variable>& identity_variables();

}  // namespace hanji::launch
