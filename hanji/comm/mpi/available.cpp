#include "hanji/comm/mpi/group.h"

namespace hanji::comm::mpi {

// Apart from what calls MPI: who only asks need not load its library.
bool available() { return HANJI_HAS_MPI != 0; }

}  // namespace hanji::comm::mpi
