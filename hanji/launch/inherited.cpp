#include "hanji/launch/inherited.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "hanji/base/checksum.h"
#include "hanji/base/crash_report.h"
#include "hanji/base/version.h"
#include "hanji/launch/internal/announcement.h"
#include "hanji/launch/internal/control.h"
#include "hanji/launch/internal/sealed_file.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;

/// Inherited descriptors stay open across exec; taking one ends that, which marks it as taken.
Result<base::Fd> take(int number, std::string_view what) {
  const int flags = ::fcntl(number, F_GETFD);
  if (flags < 0 || (flags & FD_CLOEXEC) != 0) {
    return base::invalid_argument(fmt::format(
        "descriptor {} ({}), told in HANJI_ENDPOINTS, {}: connect once per process, and start "
        "ranks through programs that keep descriptors open",
        number, what, flags < 0 ? "is closed" : "was taken before"));
  }
  base::Fd fd(number);
  HANJI_RETURN_IF_ERROR(fd.set_inherit(base::Inherit::kNo));
  return fd;
}

}  // namespace

Result<Inherited> inherited_endpoints(const Lookup& lookup) {
  const auto text = lookup(base::Variable::kHanjiEndpoints);
  if (!text) return base::not_found("HANJI_ENDPOINTS is not set: no launcher of hanji is above us");
  HANJI_ASSIGN_OR_RETURN(const Announcement told, parse_announcement(*text));
  Inherited inherited;
  shm::Endpoints& endpoints = inherited.endpoints;
  inherited.build_id = build_id_of(told.same_program == 1 ? Program::kThis : Program::kOther);
  endpoints.rank = told.rank;
  endpoints.size = told.size;
  HANJI_ASSIGN_OR_RETURN(endpoints.segment, take(told.segment, "segment"));
  HANJI_ASSIGN_OR_RETURN(endpoints.control, take(told.control, "control socket"));
  if (told.plan >= 0) {
    HANJI_ASSIGN_OR_RETURN(const base::Fd plan, take(told.plan, "plan"));
    HANJI_ASSIGN_OR_RETURN(inherited.plan_json, read_sealed(plan.get(), "plan"));
  }
  if (told.hosts >= 0) {
    HANJI_ASSIGN_OR_RETURN(const base::Fd hosts, take(told.hosts, "list of hosts"));
    HANJI_ASSIGN_OR_RETURN(inherited.hosts_json, read_sealed(hosts.get(), "list of hosts"));
  }
  HANJI_ASSIGN_OR_RETURN(endpoints.pidfds, receive_peers(endpoints.control.get(), told.rank,
                                                         told.size, base::Deadline::after(60s)));
  return inherited;
}

std::string describe_status(const Status& failure) {
  return failure.code() == Code::kInvalidArgument ? failure.message() : failure.to_string();
}

void report_failure(const shm::Endpoints& endpoints, const Status& status) {
  if (!endpoints.control.valid() || status.ok()) return;
  // A launcher that is gone has nobody to show the words to.
  static_cast<void>(send_report(endpoints.control.get(), status));
}

void report_crashes(const shm::Endpoints& endpoints, int rank) {
  base::report_crashes(STDERR_FILENO, fmt::format("rank {}", rank),
                       {endpoints.control.get(), kStackTag});
}

std::string build_id_of(Program program) {
  return program == Program::kThis ? base::build_id() : std::string(base::version());
}

std::string plan_hash(std::string_view plan_json) {
  return fmt::format("{:016x}", base::xxh3(std::as_bytes(std::span(plan_json))));
}

}  // namespace hanji::launch
