#pragma once

#include <span>

#include "hanji/base/env.h"
#include "hanji/cli/doctor/finding.h"

namespace hanji::cli {

/// Every variable of `environment` that changes what hanji, its libraries or its engines do: what
/// it means, and with which other it conflicts. Decides from its arguments alone.
///
/// `cores` are those that this process may use.
Findings judge_environment(std::span<const base::NamedValue> environment, int cores);

}  // namespace hanji::cli
