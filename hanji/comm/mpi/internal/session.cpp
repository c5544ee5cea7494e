#include "hanji/comm/mpi/internal/session.h"

#include <exception>
#include <mutex>

#include "hanji/base/status.h"

namespace hanji::comm::mpi {

std::shared_ptr<Session> Session::open() {
  // A process has one MPI for all its users; this only finds the living session.
  static std::mutex mutex;
  static std::weak_ptr<Session> alive;
  const std::lock_guard lock(mutex);
  auto session = alive.lock();
  if (!session) alive = session = std::make_shared<Session>();
  return session;
}

Session::Session() {
  int initialised = 0;
  int finalised = 0;
  check(MPI_Initialized(&initialised), "MPI_Initialized");
  check(MPI_Finalized(&finalised), "MPI_Finalized");
  if (finalised) {
    throw Error(base::unsupported(
        "MPI has been finalised in this process and cannot start again; keep one group over MPI "
        "until the last one is made, or call MPI_Init and MPI_Finalize in the program"));
  }
  if (initialised) {
    check(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
  } else {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &thread_level_),
          "MPI_Init_thread");
    owns_ = true;
  }
  operations_ = std::make_unique<Operations>();
}

Session::~Session() {
  if (!can_free()) {
    // Handles of an MPI that has ended, or still works on them, are not touched again.
    (void)operations_.release();
    return;
  }
  operations_.reset();
  // A rank that fails alone must not wait for the others here: its end tells them.
  if (owns_ && std::uncaught_exceptions() == 0) MPI_Finalize();
}

bool Session::can_free() const noexcept {
  int finalised = 0;
  MPI_Finalized(&finalised);
  return !finalised && !condemned_;
}

}  // namespace hanji::comm::mpi
