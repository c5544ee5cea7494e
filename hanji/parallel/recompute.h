#pragma once

#include "hanji/layers/flow.h"
#include "hanji/layout/range.h"

namespace hanji::parallel {

/// Returns a scope in which each of `layers` keeps only its input flow and recomputes the rest in
/// backward.
///
/// Result  the bits of the layer, as in checkpointed_all().
/// Cost    one more forward of each of the layers.
/// Errors  as checkpointed_all().
layers::LayerScope recompute(layout::Range layers);

}  // namespace hanji::parallel
