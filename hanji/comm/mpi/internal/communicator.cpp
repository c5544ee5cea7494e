#include "hanji/comm/mpi/internal/communicator.h"

#include <utility>

namespace hanji::comm::mpi {

Communicator::Communicator(std::shared_ptr<Session> session, MPI_Comm owned)
    : session_(std::move(session)), handle_(owned) {
  check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(handle_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(handle_, &size_), "MPI_Comm_size");
}

Communicator::~Communicator() {
  if (session_->can_free()) MPI_Comm_free(&handle_);
}

Status Communicator::check_thread() const {
  if (session_->thread_level() >= MPI_THREAD_SERIALIZED) return {};
  int is_main = 0;
  MPI_Is_thread_main(&is_main);
  if (is_main) return {};
  return base::unsupported(
      "MPI was initialised for one thread only, and this is another; call from that thread, or "
      "initialise MPI with MPI_THREAD_MULTIPLE");
}

}  // namespace hanji::comm::mpi
