#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/launch/environment.h"

namespace hanji::launch {

/// What the variables of one launcher say of this process.
struct Claim {
  Identity identity;
  std::string shown;  ///< The variables: "RANK=1 WORLD_SIZE (not set)".
  Status wrong;  ///< Why no process can be this one: incomplete, no number, out of range; or ok.
  /// False: RANK and its like without TORCHELASTIC_RUN_ID, which any script may have set.
  bool is_launchers = true;
  int socket = -1;  ///< The descriptor that hanji's ranks inherit.

  bool holds() const { return wrong.ok(); }
};

/// The claims of all launchers whose variables are set, innermost first as far as the variables tell:
/// hanji, torchrun, mpirun, srun, and last RANK and its like without a run id.
///
/// A step of srun counts, not an allocation, a batch script or an interactive shell of Slurm. PMI's
/// variables within a step belong to srun unless a launcher of MPICH adds the places on the host.
std::vector<Claim> read_claims(const Lookup& lookup);

/// The value of a variable that is set and not empty.
std::optional<std::string> value_of(const Lookup& lookup, base::Variable variable);

/// "RANK=1 WORLD_SIZE (not set)".
std::string show(const Lookup& lookup, const std::vector<base::Variable>& variables);

}  // namespace hanji::launch
