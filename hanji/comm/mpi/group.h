#pragma once

#include "hanji/comm/group.h"
#include "hanji/comm/hierarchical/group.h"

namespace hanji::comm::mpi {

/// Whether hanji was built with MPI; the functions below throw Error(kUnsupported) if not.
bool available();

/// A group over MPI, for CPU tensors, on a duplicate of a communicator. `communicator` points to the
/// caller's MPI_Comm, which stays the caller's; null stands for MPI_COMM_WORLD.
///
/// Every call first compares what the ranks called, by messages. Then MPI's own non-blocking
/// routine carries it out, with 16-bit floats combined in float32 by pairs and NaN kept by min and
/// max; or, for floating sums with Bits::kRun, messages and an ordered local sum. Callers drive it,
/// or the group's thread with Progress::kThread, which needs MPI_THREAD_MULTIPLE.
///
/// MPI is initialised with MPI_THREAD_MULTIPLE unless the program has done so, and finalised with
/// the last group if hanji has initialised it and no exception is on its way: once per process.
/// Order   every rank of the communicator calls it; blocks until they have.
/// Thread  as MPI was initialised: with less than MPI_THREAD_SERIALIZED the thread that did so.
/// Errors  throws Error: kInvalidArgument for an inter-communicator or MPI_COMM_NULL, kUnsupported
///         for a thread level too low or after MPI_Finalize. A call that misses its deadline names
///         the ranks that have not called; 2^31 elements or more are refused by routines with
///         shares. After an error MPI is left as it is: end the process.
Group make_group(const void* communicator, GroupOptions options = {});

/// The ranks of `meet` again, connected by MPI, in their order and on their heap. They are of one
/// MPI world: started by mpirun, or by srun with PMIx.
/// Errors  throws Error(kUnsupported) where no launcher of MPI has started the ranks.
Group make_group(const Group& meet, GroupOptions options = {});

/// Connects ranks of several hosts by MPI: `rank` is the caller's among all, and its rank in
/// MPI_COMM_WORLD. Initialises MPI as make_group() does.
/// Errors  throws Error(kUnsupported) where no launcher of MPI has started the ranks, or has
///         numbered them otherwise.
hierarchical::Join make_join(int rank);

}  // namespace hanji::comm::mpi
