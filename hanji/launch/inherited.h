#pragma once

#include <string>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/launch/environment.h"
#include "hanji/shm/endpoints.h"

namespace hanji::launch {

/// What a rank gets from its launcher.
struct Inherited {
  shm::Endpoints endpoints;
  std::string plan_json;        ///< Empty if the launcher made no plan.
  std::string build_id;         ///< That the segment must have been made with.
  std::string hosts_json = {};  ///< For join_hosts(), with the run's token; empty on one host.
};

/// Takes over the descriptors that launch() announced in HANJI_ENDPOINTS, and waits until all
/// ranks have started.
///
/// Result  none of the descriptors is inherited by programs that this process starts.
/// Errors  kNotFound if nothing is announced; kInvalidArgument if the descriptors are closed or
///         were taken before: they can be taken once per process. kPeerLost, kTimeout: launcher.
Result<Inherited> inherited_endpoints(const Lookup& lookup = base::read);

/// What people read of a failure: "code: message"; of kInvalidArgument the message, which says all.
std::string describe_status(const Status& failure);

/// Tells the launcher why this rank is about to fail; it shows the words beside the exit code.
/// Does nothing where no launcher of ours listens.
void report_failure(const shm::Endpoints& endpoints, const Status& status);

/// base::report_crashes() to the own log of this rank, `rank` among all, and to the launcher, which
/// shows the stack with names. A rank that hangs tells its stack when the launcher asks for it.
void report_crashes(const shm::Endpoints& endpoints, int rank);

/// What the segment of a launcher is marked with: the program's build id if launcher and ranks are
/// one program, else the library's version.
enum class Program { kThis, kOther };
std::string build_id_of(Program program);

/// The fingerprint of a plan by which ranks check that they follow the same one.
std::string plan_hash(std::string_view plan_json);

}  // namespace hanji::launch
