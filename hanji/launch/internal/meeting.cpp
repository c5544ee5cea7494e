#include "hanji/launch/internal/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "hanji/base/file.h"
#include "hanji/base/limits.h"
#include "hanji/base/socket.h"
#include "hanji/launch/internal/announcement.h"
#include "hanji/launch/internal/control.h"
#include "hanji/shm/liveness.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;

/// Of a group beside the sockets and pidfds of its ranks, with some to tell that there are too few.
constexpr int64_t kDescriptorsBeside = 16;

void copy_text(std::string_view text, std::span<char> field) {
  const size_t count = std::min(text.size(), field.size() - 1);
  std::copy_n(text.begin(), count, field.begin());
}

std::string_view text_in(std::span<const char> field) {
  return {field.data(), ::strnlen(field.data(), field.size())};
}

/// A socket that is bound but does not listen yet looks dead, so it waits under its maker's pid.
std::filesystem::path unfinished(const std::filesystem::path& path) {
  return path.parent_path() / fmt::format("{}.{}", path.stem().string(), ::getpid());
}

bool is_left_over(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_socket(path, error)) return false;
  if (path.extension() == ".sock") {
    const auto probe = base::connect_unix(path, base::Deadline::after(0ns));
    return probe.status().code() == Code::kTimeout;
  }
  const std::string extension = path.extension().string();
  const auto maker = parse_integer(std::string_view(extension).substr(extension.empty() ? 0 : 1));
  return maker && *maker > 0 && ::kill(*maker, 0) != 0 && errno == ESRCH;
}

bool has_left(int connection) {
  pollfd poll{connection, POLLRDHUP, 0};
  return ::poll(&poll, 1, 0) > 0 && (poll.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/// Same user as we: the folder's mode says so already, the kernel says it again.
Result<pid_t> trusted_pid(int connection) {
  HANJI_ASSIGN_OR_RETURN(const auto credentials, base::peer_credentials(connection));
  if (credentials.uid != ::geteuid()) {
    return base::invalid_argument(
        fmt::format("process {} of user {} wanted to meet ranks of user {}: refused",
                    credentials.pid, credentials.uid, ::geteuid()));
  }
  if (credentials.pid <= 0) {
    return base::unsupported(
        "the ranks run in different PID namespaces, so they cannot watch each other: start them in "
        "one container");
  }
  return credentials.pid;
}

Status compare(const char* what, std::span<const char> theirs, std::span<const char> ours,
               int rank) {
  if (text_in(theirs) == text_in(ours)) return {};
  return base::mismatch(
      fmt::format("{} of rank {} is '{}', of rank 0 '{}': start one program with "
                  "one configuration on all ranks",
                  what, rank, text_in(theirs), text_in(ours)));
}

}  // namespace

RankHello hello_of(const Identity& identity, const shm::SegmentOptions& options) {
  RankHello hello;
  hello.rank = identity.local_rank;
  hello.size = identity.local_size;
  copy_text(options.build_id, hello.build_id);
  copy_text(options.plan_hash, hello.plan_hash);
  const Status room =
      base::check_descriptors(2 * int64_t{identity.local_size} + kDescriptorsBeside,
                              fmt::format("rank {}, to meet the ranks of a group of {},",
                                          identity.local_rank, identity.local_size));
  copy_text(room.message(), hello.refusal);
  return hello;
}

Meeting::Meeting(std::filesystem::path path, base::Fd listener, const RankHello& own)
    : path_(std::move(path)), listener_(std::move(listener)), own_(own), seats_(own.size) {
  if (own.refusal[0] != 0) refusal_ = base::invalid_argument(std::string(text_in(own.refusal)));
}

Meeting::Meeting(Meeting&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      listener_(std::move(other.listener_)),
      own_(other.own_),
      refusal_(std::move(other.refusal_)),
      arrived_(std::move(other.arrived_)),
      seats_(std::move(other.seats_)) {}

Meeting::~Meeting() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<Meeting> Meeting::open(const std::filesystem::path& path, const RankHello& own) {
  HANJI_RETURN_IF_ERROR(base::make_private_directory(path.parent_path()));
  sweep_meetings(path.parent_path());
  if (std::filesystem::exists(std::filesystem::symlink_status(path))) {
    return base::invalid_argument(fmt::format(
        "another job with the same id meets at {}: give this one an id of its own (MASTER_PORT, "
        "--rdzv-id)",
        path.string()));
  }
  const auto draft = unfinished(path);
  ::unlink(draft.c_str());
  HANJI_ASSIGN_OR_RETURN(base::Fd listener, base::listen_unix(draft));
  if (::rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(draft.c_str());
    return base::from_errno("open the meeting at " + path.string(), error);
  }
  Meeting meeting(path, std::move(listener), own);
  ConnectedRank& host = meeting.seats_[own.rank];
  host.pid = ::getpid();
  HANJI_ASSIGN_OR_RETURN(host.pidfd, shm::open_pidfd(::getpid()));
  return meeting;
}

Status Meeting::gather(base::Deadline deadline) {
  Status status = gather_all(deadline);
  if (status.ok()) status = refusal_;
  if (status.ok()) return status;
  for (const std::vector<ConnectedRank>* ranks : {&seats_, &arrived_}) {
    for (const ConnectedRank& connected : *ranks) {
      if (!connected.connection.valid()) continue;
      // Who does not listen any more needs no refusal.
      static_cast<void>(base::send_message(connected.connection.get(),
                                           status_message(kRefusal, status), {},
                                           base::Deadline::after(1s)));
    }
  }
  return status;
}

Status Meeting::gather_all(base::Deadline deadline) {
  while (num_seated() < own_.size) {
    if (deadline.passed()) return who_is_missing();
    std::vector<pollfd> polls = {{listener_.get(), POLLIN, 0}};
    for (const ConnectedRank& connected : arrived_)
      polls.push_back({connected.connection.get(), POLLIN, 0});
    for (const ConnectedRank& connected : seats_)
      polls.push_back({connected.connection.get(), POLLRDHUP, 0});
    ::poll(polls.data(), polls.size(), deadline.poll_ms());
    for (ConnectedRank& connected : arrived_) HANJI_RETURN_IF_ERROR(take_hello(connected));
    std::erase_if(arrived_,
                  [](const ConnectedRank& connected) { return !connected.connection.valid(); });
    for (int rank = 0; rank < own_.size; ++rank) {
      const ConnectedRank& connected = seats_[rank];
      if (!connected.connection.valid() || !has_left(connected.connection.get())) continue;
      return base::peer_lost(
          fmt::format("rank {} (process {}) ended before all ranks had met", rank, connected.pid));
    }
    accept();
  }
  return {};
}

void Meeting::accept() {
  auto connection = base::accept_unix(listener_.get(), base::Deadline::after(0ns));
  if (connection.ok()) arrived_.emplace_back().connection = *std::move(connection);
}

/// Seats a rank whose hello has come; closes the connection of one that sent anything else.
Status Meeting::take_hello(ConnectedRank& connected) {
  const auto message = base::receive_message(connected.connection.get(), sizeof(RankHello),
                                             base::Deadline::after(0ns));
  if (!message.ok() && message.status().code() == Code::kTimeout) return {};
  RankHello hello;
  const bool whole = message.ok() && message->bytes.size() == sizeof(hello);
  if (whole) std::memcpy(&hello, message->bytes.data(), sizeof(hello));
  const auto pid = trusted_pid(connected.connection.get());
  if (!pid.ok() && pid.status().code() == Code::kUnsupported) return pid.status();
  if (!whole || hello.magic != RankHello::kMagic || !pid.ok()) {
    connected.connection.reset();
    return {};
  }
  connected.pid = *pid;
  return seat(hello, connected);
}

Status Meeting::seat(const RankHello& hello, ConnectedRank& connected) {
  if (hello.size != own_.size || hello.rank < 0 || hello.rank >= own_.size) {
    return base::invalid_argument(
        fmt::format("process {} says it is rank {} of {}; rank 0 (process {}) counts {} ranks",
                    connected.pid, hello.rank, hello.size, ::getpid(), own_.size));
  }
  ConnectedRank& seat = seats_[hello.rank];
  if (seat.pid >= 0) {
    return base::invalid_argument(fmt::format("processes {} and {} both say they are rank {}",
                                              seat.pid, connected.pid, hello.rank));
  }
  HANJI_RETURN_IF_ERROR(compare("the build", hello.build_id, own_.build_id, hello.rank));
  HANJI_RETURN_IF_ERROR(compare("the plan", hello.plan_hash, own_.plan_hash, hello.rank));
  if (refusal_.ok() && hello.refusal[0] != 0) {
    refusal_ = base::invalid_argument(std::string(text_in(hello.refusal)));
  }
  HANJI_ASSIGN_OR_RETURN(connected.pidfd, shm::open_pidfd(connected.pid));
  seat = std::move(connected);
  return {};
}

int Meeting::num_seated() const {
  return static_cast<int>(
      std::count_if(seats_.begin(), seats_.end(),
                    [](const ConnectedRank& connected) { return connected.pid >= 0; }));
}

Status Meeting::who_is_missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < own_.size; ++rank) {
    if (seats_[rank].pid < 0) missing.push_back(rank);
  }
  return base::timeout(fmt::format(
      "{} of {} ranks came to {}; missing: rank {}. Were all started on this host, by this user, "
      "with the same job id?",
      num_seated(), own_.size, path_.string(), fmt::join(missing, ", ")));
}

std::vector<int> Meeting::pidfds() const {
  std::vector<int> pidfds;
  for (const ConnectedRank& connected : seats_) pidfds.push_back(connected.pidfd.get());
  return pidfds;
}

Status Meeting::welcome(int segment) const {
  std::vector<int> descriptors = {segment};
  for (const int pidfd : pidfds()) descriptors.push_back(pidfd);
  for (int rank = 0; rank < own_.size; ++rank) {
    const ConnectedRank& connected = seats_[rank];
    if (!connected.connection.valid()) continue;
    const Status sent =
        base::send_message(connected.connection.get(), std::span(&kWelcome, 1), descriptors);
    if (!sent.ok())
      return sent.at(fmt::format("welcome rank {} (process {})", rank, connected.pid));
  }
  return {};
}

Result<shm::Endpoints> join_meeting(const std::filesystem::path& path, const RankHello& hello,
                                    base::Deadline deadline) {
  auto connection = base::connect_unix(path, deadline);
  if (!connection.ok() && connection.status().code() == Code::kTimeout) {
    return base::timeout(fmt::format(
        "rank {} waited for rank 0 at {}, which did not come. Was it started on this host, by this "
        "user, with the same job id?",
        hello.rank, path.string()));
  }
  if (!connection.ok()) return connection.status();
  HANJI_ASSIGN_OR_RETURN([[maybe_unused]] const pid_t host, trusted_pid(connection->get()));
  HANJI_RETURN_IF_ERROR(base::send_message(connection->get(), std::as_bytes(std::span(&hello, 1))));
  // Rank 0's own deadline comes first, and its word names the ranks that are missing.
  const auto patience = base::Deadline::after(deadline.remaining() + 5s);
  auto answer = base::receive_message(connection->get(), kMaxStatusBytes, patience);
  if (!answer.ok()) return answer.status().at(fmt::format("meet rank 0 at {}", path.string()));
  if (const auto refusal = parse_status(kRefusal, answer->bytes)) return *refusal;
  auto& descriptors = answer->descriptors;
  if (static_cast<int>(descriptors.size()) != hello.size + 1) {
    return base::corrupt(fmt::format("rank 0 at {} handed out {} descriptors instead of {}",
                                     path.string(), descriptors.size(), hello.size + 1));
  }
  shm::Endpoints endpoints;
  endpoints.segment = std::move(descriptors.front());
  endpoints.pidfds.assign(std::make_move_iterator(descriptors.begin() + 1),
                          std::make_move_iterator(descriptors.end()));
  endpoints.pidfds[hello.rank].reset();
  endpoints.rank = hello.rank;
  endpoints.size = hello.size;
  return endpoints;
}

void sweep_meetings(const std::filesystem::path& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (is_left_over(entry.path())) ::unlink(entry.path().c_str());
  }
}

}  // namespace hanji::launch
