#include "hanji/launch/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "hanji/base/checksum.h"
#include "hanji/base/text.h"
#include "hanji/base/units.h"
#include "hanji/launch/internal/control.h"
#include "hanji/launch/internal/meeting.h"

namespace hanji::launch {
namespace {

Result<base::Fd> copy_of(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return base::from_errno("duplicate a descriptor", errno);
  return base::Fd(copy);
}

/// The segment, made here, and who else maps it.
Result<shm::Endpoints> endpoints_of_host(const shm::Segment& segment, const Identity& identity,
                                         const std::vector<int>& pidfds) {
  shm::Endpoints endpoints;
  endpoints.rank = identity.local_rank;
  endpoints.size = identity.local_size;
  HANJI_ASSIGN_OR_RETURN(endpoints.segment, copy_of(segment.fd()));
  for (int rank = 0; rank < identity.local_size; ++rank) {
    endpoints.pidfds.emplace_back();
    if (rank == identity.local_rank) continue;
    HANJI_ASSIGN_OR_RETURN(endpoints.pidfds.back(), copy_of(pidfds[rank]));
  }
  return endpoints;
}

/// Ranks that do not come may be on other hosts, if nothing has told who is here.
Status with_assumption(const Status& status, const Identity& identity) {
  const bool is_new = status.message().find(identity.assumption) == std::string::npos;
  if (status.code() != Code::kTimeout || identity.assumption.empty() || !is_new) return status;
  return base::timeout(fmt::format("{} {}; set them if there are other hosts", status.message(),
                                   identity.assumption));
}

Result<shm::Endpoints> host_meeting(const std::filesystem::path& path, const RankHello& hello,
                                    const Identity& identity,
                                    const shm::SegmentOptions& segment_options,
                                    base::Deadline deadline) {
  HANJI_ASSIGN_OR_RETURN(Meeting meeting, Meeting::open(path, hello));
  HANJI_RETURN_IF_ERROR(meeting.gather(deadline));
  HANJI_ASSIGN_OR_RETURN(const auto segment, shm::Segment::create(segment_options));
  HANJI_RETURN_IF_ERROR(meeting.welcome(segment->fd()));
  return endpoints_of_host(*segment, identity, meeting.pidfds());
}

// The socket's name while it is made is its pid's, up to ".4194304" for ".sock".
constexpr size_t kDraftBytes = 3;

/// The folder where ranks meet, and what names it.
struct MeetingFolder {
  std::filesystem::path path;
  base::Variable variable = base::Variable::kTmpDir;
};

MeetingFolder meeting_folder(const Lookup& lookup) {
  std::error_code error;
  const std::filesystem::path runtime = lookup(base::Variable::kXdgRuntimeDir).value_or("");
  if (!runtime.empty() && std::filesystem::is_directory(runtime, error)) {
    return {runtime / "hanji", base::Variable::kXdgRuntimeDir};
  }
  std::string temporary = lookup(base::Variable::kTmpDir).value_or("");
  if (temporary.empty()) temporary = "/tmp";
  return {std::filesystem::path(temporary) / fmt::format("hanji-{}", ::geteuid())};
}

}  // namespace

std::filesystem::path meeting_directory(const Lookup& lookup) {
  return meeting_folder(lookup).path;
}

Status check_meeting_path(const std::filesystem::path& path, const Lookup& lookup) {
  const size_t most = sizeof(sockaddr_un::sun_path) - 1;
  const size_t length = path.native().size() + kDraftBytes;
  if (length <= most) return {};
  const base::VariableSpec& named = base::spec_of(meeting_folder(lookup).variable);
  const std::string value = lookup(meeting_folder(lookup).variable).value_or("");
  return base::invalid_argument(fmt::format(
      "{} is a path of {}, {}: the socket in it where the ranks of this host meet would have {} "
      "bytes, and the path of a Unix socket has at most {}; set {} to a shorter path",
      named.name, base::counted(std::ssize(value), "byte"), base::json_quote(value), length, most,
      named.name));
}

std::filesystem::path meeting_path(const std::filesystem::path& directory,
                                   const Identity& identity) {
  base::Sha256 hash;
  hash.update(fmt::format("{}\n{}", ::geteuid(), identity.job_id));
  // Where hosts share the folder, or are namespaces of one, each has a meeting of its own.
  if (identity.local_size < identity.world_size) {
    hash.update(fmt::format("\nfrom rank {}", identity.rank - identity.local_rank));
  }
  return directory / (hash.hex().substr(0, 24) + ".sock");
}

Result<shm::Endpoints> meet(const Identity& identity, const MeetOptions& options) {
  shm::SegmentOptions segment_options = options.segment;
  segment_options.ranks = identity.local_size;
  if (identity.local_size == 1) {
    HANJI_ASSIGN_OR_RETURN(const auto segment, shm::Segment::create(segment_options));
    return endpoints_of_host(*segment, identity, {});
  }
  const auto deadline = base::Deadline::after(options.deadline);
  const auto path =
      meeting_path(options.directory.empty() ? meeting_directory() : options.directory, identity);
  if (options.directory.empty()) HANJI_RETURN_IF_ERROR(check_meeting_path(path));
  const RankHello hello = hello_of(identity, segment_options);
  auto endpoints = identity.local_rank == 0
                       ? host_meeting(path, hello, identity, segment_options, deadline)
                       : join_meeting(path, hello, deadline);
  if (!endpoints.ok()) return with_assumption(endpoints.status(), identity);
  return endpoints;
}

}  // namespace hanji::launch
