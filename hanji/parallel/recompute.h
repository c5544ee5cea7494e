#pragma once

#include "hanji/layers/flow.h"
#include "hanji/layout/range.h"

namespace hanji::parallel {

/// Returns a scope in which each of `layers` keeps the flow that it is given, and computes the rest
/// again in backward.
///
/// Result  the bits of the layer, as checkpointed_all() has them.
/// Cost    one more forward of each of the layers.
/// Errors  as checkpointed_all().
layers::LayerScope recompute(layout::Range layers);

}  // namespace hanji::parallel
