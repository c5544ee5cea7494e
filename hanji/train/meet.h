#pragma once

#include "hanji/plan/plan.h"
#include "hanji/world/world.h"

namespace hanji::train {

/// Meets the ranks that launch_options() started; step lists are priced with the plan's rates.
/// Errors  throws as world::connect(), and kCorrupt for a plan that is none.
world::World meet();

/// What a group must keep for the plan, in place of what `options` say.
comm::GroupOptions follow_plan(const plan::Plan& plan, comm::GroupOptions options);

/// The ranks of `met`, all of `world`, over the engine that the plan names: on one host that engine
/// itself, over several shared memory inside each and that engine between them.
/// Errors  throws Error(kUnsupported) for an engine that this launcher or build has not, or that
///         joins hosts where there is one.
comm::Group training_group(const world::World& world, const comm::Group& met,
                           const plan::Plan& plan);

}  // namespace hanji::train
