#include "hanji/comm/mpi/group.h"

#include "hanji/base/status.h"

namespace hanji::comm::mpi {
namespace {

[[noreturn]] void refuse() {
  throw Error(base::unsupported(
      "hanji was built without MPI; use comm.engine = shm, or install libopenmpi-dev and build it "
      "again"));
}

}  // namespace

Group make_group(const void*, GroupOptions) { refuse(); }

Group make_group(const Group&, GroupOptions) { refuse(); }

hierarchical::Join make_join(int) { refuse(); }

}  // namespace hanji::comm::mpi
