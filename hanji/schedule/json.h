#pragma once

#include <string>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/schedule/step_list.h"

namespace hanji::schedule {

/// The list as one JSON object, format version 2.
std::string to_json(const StepList& list);

/// Reads what to_json() writes and nothing else: unknown, missing or repeated keys, other types,
/// numbers out of range and operands outside their buffers are refused. Hostile text is safe: it
/// costs memory in proportion to its own length. check() tells whether the list does its routine.
/// Errors  corrupt, naming rank and step.
Result<StepList> from_json(std::string_view text);

}  // namespace hanji::schedule
