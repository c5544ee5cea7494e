#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/env.h"
#include "hanji/base/status.h"

namespace hanji::launch {

/// Who started this process; torchrun stands for all that set RANK and WORLD_SIZE.
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
  /// One line where variables of other launchers are set too: which one is followed, which are not.
  std::string nesting = {};
  /// What had to be assumed, as variables are not set; for messages about ranks that do not come.
  std::string assumption = {};
};

/// Where variables come from: base::read, or a table in tests.
using Lookup = std::function<std::optional<std::string>(base::Variable)>;

/// True for a descriptor of this process that is a socket.
bool is_open_socket(int descriptor);

/// Reads the launchers' variables. Of nested launchers the innermost started this process: hanji,
/// whose descriptors are inherited, else torchrun (which sets a run id), else mpirun, else a step of srun.
/// Everything in Identity is that launcher's. RANK and WORLD_SIZE without a run id come last, because
/// scripts like to copy another launcher's numbers to them; but a launcher that started one process
/// only yields to them, and hanji to any other.
///
/// `is_open` tells whether a descriptor is open in this process: that of hanji's socket is not where
/// another launcher is between hanji and this process.
/// Errors  kInvalidArgument, every variable shown and those that are missing named, if the innermost
///         set is incomplete, not a number or out of range; if RANK and WORLD_SIZE without a run id
///         contradict a launcher. An incomplete set is left aside if another one is complete, and so is
///         what is left of a hanji that is not inherited.
Result<Identity> detect(const Lookup& lookup = base::read,
                        const std::function<bool(int)>& is_open = is_open_socket);

/// The variables that say who a process is. A launcher replaces or removes all of them.
const std::vector<base::Variable>& identity_variables();

}  // namespace hanji::launch
