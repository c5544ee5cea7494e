#pragma once

// The C interface alone: the C++ bindings of MPI-2 are gone from the standard.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <string_view>

namespace hanji::comm::mpi {

/// Throws Error unless `error`, what the call of MPI named `call` returned, is MPI_SUCCESS. The code
/// follows MPI's class of the error, the words are MPI's.
void check(int error, std::string_view call);

}  // namespace hanji::comm::mpi
