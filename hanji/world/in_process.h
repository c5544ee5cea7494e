#pragma once

#include <vector>

#include "hanji/world/connect.h"

namespace hanji::world {

/// `ranks` worlds of this very process over one segment, for ranks that are threads.
///
/// Thread  each world belongs to one thread; ranks wait for each other as processes do.
/// Errors  throws Error(kInvalidArgument) for a number of ranks that a segment does not hold.
std::vector<World> make_worlds(int ranks, const ConnectOptions& options = {});

}  // namespace hanji::world
