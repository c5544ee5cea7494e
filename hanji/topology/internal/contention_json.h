#pragma once

#include "hanji/base/json.h"
#include "hanji/topology/contention.h"

namespace hanji::topology {

/// The rows of contention_text() for programs: kinds of links, rates in bytes per second, null where unknown.
base::Json contention_json(const Contention& found);

}  // namespace hanji::topology
