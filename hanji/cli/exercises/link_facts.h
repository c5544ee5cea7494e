#pragma once

#include "hanji/base/json.h"
#include "hanji/base/status.h"
#include "hanji/cli/exercises/judges.h"

namespace hanji::cli {

/// What `hanji topo --measure --json` says of memory, cores and GPUs; the rest is not measured.
/// Errors  kInternal if nothing was measured.
Result<LinkFacts> read_link_facts(const base::Json& topo);

}  // namespace hanji::cli
