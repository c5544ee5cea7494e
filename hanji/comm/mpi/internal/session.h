#pragma once

#include <atomic>
#include <memory>

#include "hanji/comm/mpi/internal/operations.h"

namespace hanji::comm::mpi {

/// MPI of this process while groups use it. MPI can be started once, so all groups share one.
class Session {
 public:
  /// Initialises MPI unless somebody has; the last owner finalises what this has initialised.
  /// Errors  throws Error(kUnsupported) after MPI_Finalize.
  static std::shared_ptr<Session> open();

  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Operations& operations() const { return *operations_; }
  /// MPI_THREAD_SINGLE and upwards.
  int thread_level() const { return thread_level_; }
  /// Something is under way that will never end: MPI is left as it is.
  void condemn() noexcept { condemned_ = true; }
  /// Whether handles may still be given back.
  bool can_free() const noexcept;

 private:
  bool owns_ = false;
  int thread_level_ = MPI_THREAD_SINGLE;
  std::atomic<bool> condemned_ = false;
  std::unique_ptr<Operations> operations_;
};

}  // namespace hanji::comm::mpi
