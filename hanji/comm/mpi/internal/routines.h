#pragma once

#include <memory>

#include "hanji/comm/internal/engine.h"
#include "hanji/comm/mpi/internal/requests.h"

namespace hanji::comm::mpi {

/// Starts MPI's own non-blocking routine for the request, with shares that are even or not.
/// Errors  throws Error(kUnsupported) for counts that MPI's int does not hold.
void start(const Request& request, const Communicator& communicator, Requests& requests);

}  // namespace hanji::comm::mpi
