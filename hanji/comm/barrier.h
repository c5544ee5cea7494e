#pragma once

#include <source_location>

#include "hanji/comm/call_options.h"
#include "hanji/comm/group.h"

namespace hanji::comm {

/// Returns when every rank of `group` has called it, after all collectives submitted before.
///
/// Errors  throws as Work::wait().
void barrier(const Group& group, const CallOptions& options = {},
             std::source_location call_site = std::source_location::current());

}  // namespace hanji::comm
