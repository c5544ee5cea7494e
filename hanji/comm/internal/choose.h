#pragma once

#include "hanji/comm/group.h"
#include "hanji/comm/internal/engine.h"

namespace hanji::comm {

/// Picks how `engine` carries `request` out, keeping the promise of `bits`.
///
/// Shared memory: what `chooser` selects. Otherwise the engine's own routine where it has one and
/// the order of a sum cannot be seen or does not matter; else messages and an ordered local sum.
/// Errors  as the makers of the lists; kUnsupported for a tree_reduce on GPUs.
Result<Choice> choose(const Request& request, const Engine& engine, Bits bits,
                      cost::Chooser& chooser);

}  // namespace hanji::comm
