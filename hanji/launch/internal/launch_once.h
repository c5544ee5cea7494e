#pragma once

#include "hanji/launch/internal/signal_relay.h"
#include "hanji/launch/launcher.h"

namespace hanji::launch {

/// launch() with a relay that outlives it, so that no signal is lost between two launches. Null:
/// signals are left to the program.
Result<Outcome> launch_once(const LaunchOptions& options, SignalRelay* relay);

}  // namespace hanji::launch
