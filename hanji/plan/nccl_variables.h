#pragma once

#include <span>
#include <string_view>

namespace hanji::plan {

/// A variable of NCCL.
struct NcclVariable {
  std::string_view name;  ///< "NCCL_SOCKET_IFNAME"
  std::string_view doc;   ///< What it sets, and its values.
};

/// Those that its users set, by name.
///
/// Source  NCCL's user guide, chapter "Environment Variables", versions 2.10 to 2.30.
std::span<const NcclVariable> nccl_variables();

/// nullptr if there is none of that name.
const NcclVariable* find_nccl_variable(std::string_view name);

}  // namespace hanji::plan
