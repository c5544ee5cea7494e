#pragma once

#include <optional>

#include "hanji/schedule/internal/formula.h"

namespace hanji::schedule::internal {

/// formula() for the algorithms whose ranks exchange messages; nothing for others.
std::optional<Totals> message_formula(const StepList& list);

}  // namespace hanji::schedule::internal
