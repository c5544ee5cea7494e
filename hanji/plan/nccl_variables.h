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

/// Those that its users set, by name: the keys of [comm.nccl], and what `hanji doctor` explains.
///
/// Source  NCCL's user guide, chapter "Environment Variables", versions 2.10 to 2.30.
std::span<const NcclVariable> nccl_variables();

/// nullptr if there is none of that name.
const NcclVariable* find_nccl_variable(std::string_view name);

/// One line for each variable of [comm.nccl] that the environment sets otherwise: the configuration
/// holds.
std::vector<std::string> overridden_variables(const Config& config,
                                              std::span<const base::NamedValue> environment);

}  // namespace hanji::plan
