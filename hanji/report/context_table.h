#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/base/terminal.h"
#include "hanji/layout/context.h"
#include "hanji/plan/context.h"

namespace hanji::report {

/// A line for each way: its exchanges, the bytes that all ranks send forward and backward, those of a rank, and
/// seconds; then what each rank has, and the cheaper way.
std::string context_table(const layout::ContextAttention& attention, int64_t samples,
                          const std::vector<plan::ContextCost>& costs,
                          int columns = base::kTerminalColumns);

/// The same for programs: one JSON document.
std::string context_json(const layout::ContextAttention& attention, int64_t samples,
                         const std::vector<plan::ContextCost>& costs);

}  // namespace hanji::report
