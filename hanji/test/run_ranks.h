#pragma once

#include <exception>
#include <functional>

#include "hanji/test/run_threads.h"
#include "hanji/world/in_process.h"

namespace hanji::test {

/// Runs body(world) for `ranks` worlds of this process, each on a thread of its own. If one
/// throws, the others' waits end, and the first exception is thrown again here.
inline void run_ranks(int ranks, const std::function<void(world::World& world)>& body,
                      const world::ConnectOptions& options = {}) {
  std::vector<world::World> worlds = world::make_worlds(ranks, options);
  run_threads(ranks, [&](int rank) {
    try {
      body(worlds[rank]);
    } catch (...) {
      worlds[rank].fail(world::status_of(std::current_exception()));
      throw;
    }
  });
}

}  // namespace hanji::test
