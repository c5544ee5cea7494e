#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/env.h"
#include "hanji/plan/config.h"

namespace hanji::plan {

/// A variable of NCCL.
struct NcclVariable {
  std::string_view name;  ///< "NCCL_SOCKET_IFNAME"
  std::string_view doc;   ///< What it sets, and its values.
};

/// The variables for users, by name: the keys of [comm.nccl], which `hanji doctor` explains.
///
/// Source  NCCL's user guide, chapter "Environment Variables", versions 2.10 to 2.30.
std::span<const NcclVariable> nccl_variables();

/// Returns nullptr for an unknown name.
const NcclVariable* find_nccl_variable(std::string_view name);

/// One line for each variable of [comm.nccl] with another value in the environment; the configuration
/// wins.
std::vector<std::string> overridden_variables(const Config& config,
                                              std::span<const base::NamedValue> environment);

}  // namespace hanji::plan
