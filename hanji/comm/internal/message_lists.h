#pragma once

#include <span>

#include "hanji/base/status.h"
#include "hanji/comm/internal/engine.h"
#include "hanji/schedule/step_list.h"

namespace hanji::comm {

/// The list by which `ranks` ranks that only exchange messages carry `request` out; sums keep the
/// order of all other engines, and 16-bit floats are rounded as shm::rounding_of() says. Of a tree_reduce the grains'
/// owners count, which its own steps name. Broadcasts follow `order`, as Engine::order() has it.
Result<schedule::StepList> message_list(const Request& request, int ranks,
                                        std::span<const int> order);

}  // namespace hanji::comm
