#pragma once

#include <functional>

#include "hanji/world/connect.h"

namespace hanji::world {

struct SpawnOptions {
  ConnectOptions connect;  ///< Its plan, heap and trace sizes hold for all ranks.
};

/// Runs `body` as `ranks` processes, copies of this one, and returns when all have ended: for
/// programs that have no launcher. Each rank is pinned to cores of its own while there are enough
/// of them, and libtorch uses as many threads there as the rank has cores.
///
/// Order   call it before libtorch has started threads: only the calling thread lives on in a copy,
///         and locks that others held stay locked.
/// Errors  throws what the first failing rank threw: Error with its code and "rank 2: ...";
///         kPeerLost naming the signal that killed it. kInvalidArgument, before anything starts, if
///         this process has more than one thread.
void spawn(int ranks, const std::function<void(World&)>& body, const SpawnOptions& options = {});

}  // namespace hanji::world

namespace hanji {
using world::spawn;
}  // namespace hanji
