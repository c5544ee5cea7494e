#pragma once

#include <memory>

#include "hanji/base/status.h"
#include "hanji/comm/mpi/internal/session.h"

namespace hanji::comm::mpi {

/// A communicator of our own, whose errors come back as values. Shared by a group and its channels.
class Communicator {
 public:
  /// Takes `owned` over.
  Communicator(std::shared_ptr<Session> session, MPI_Comm owned);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm handle() const { return handle_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Session& session() const { return *session_; }
  const std::shared_ptr<Session>& shared_session() const { return session_; }
  /// Refuses a thread that MPI was not initialised for.
  Status check_thread() const;

 private:
  const std::shared_ptr<Session> session_;
  MPI_Comm handle_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace hanji::comm::mpi
