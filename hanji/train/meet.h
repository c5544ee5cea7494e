#pragma once

#include "hanji/plan/plan.h"
#include "hanji/world/world.h"

namespace hanji::train {

/// Meets the ranks that launch_options() started; step lists are priced with the plan's rates.
/// Errors  throws as world::connect(), and kCorrupt for a plan that is none.
world::World meet();

/// Over the engine that the plan names; ranks meet in shared memory in any case.
comm::Group training_group(const world::World& world, const plan::Plan& plan);

}  // namespace hanji::train
