#include "hanji/shm/liveness.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <numeric>
#include <system_error>

#include "hanji/base/clock.h"
#include "hanji/base/limits.h"
#include "hanji/base/stop_signals.h"
#include "hanji/base/units.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/shm/internal/verdict.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm {

using internal::Presence;

namespace {

Presence presence_of(const Segment& segment, int rank) {
  return static_cast<Presence>(segment.rank_state(rank).presence.load());
}

std::string hostname() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

/// The kernel's letter: T is stopped, D waits for a disk, R only starves.
char state_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ? '?' : text[end + 2];
}

}  // namespace

std::optional<int> rank_in_world(const Segment& segment, int rank) {
  const auto recorder = trace::Recorder::attach(segment.trace_memory(rank));
  return recorder.ok() ? std::optional(recorder->rank()) : std::nullopt;
}

int name_of_rank(const Segment& segment, int rank) {
  return rank_in_world(segment, rank).value_or(rank);
}

std::string coordinates_of_rank(const Segment& segment, int rank) {
  const auto recorder = trace::Recorder::attach(segment.trace_memory(rank));
  return recorder.ok() ? recorder->coordinates() : "";
}

std::string describe_rank(const Segment& segment, int rank) {
  const auto recorder = trace::Recorder::attach(segment.trace_memory(rank));
  std::string text = fmt::format("rank {} (host {}, process {}", name_of_rank(segment, rank),
                                 hostname(), segment.pid(rank));
  if (recorder.ok() && !recorder->coordinates().empty()) text += ", " + recorder->coordinates();
  if (recorder.ok() && recorder->step() > 0) text += fmt::format(", step {}", recorder->step());
  if (recorder.ok() && !recorder->open_spans().empty()) text += ", in " + recorder->open_spans();
  return text + ")";
}

std::string describe_last_call(const std::shared_ptr<Segment>& segment, int rank) {
  const uint64_t call = segment->rank_state(rank).last_call.load(std::memory_order_acquire);
  const int group = static_cast<int>(call >> 48) - 1;
  const int end = segment->channel_id(segment->ranks() - 1, segment->ranks() - 1) + 1;
  if (group < 0 || group >= end) return "it made no call";
  std::vector<int> all(segment->ranks());
  std::iota(all.begin(), all.end(), 0);
  const auto lines = internal::GroupLines(segment, 0, std::move(all), rank).of(group, rank);
  const bool has_posted = lines.me() < lines.size() && lines.last_sequence(lines.me()) != 0;
  return has_posted ? internal::own_last_call(lines) : "it made no call";
}

void forget_last_call(const Segment& segment, int rank) {
  segment.rank_state(rank).last_call.store(0, std::memory_order_release);
}

bool waits(const Segment& segment, int rank) {
  const uint64_t waiting = segment.rank_state(rank).waiting.load(std::memory_order_acquire);
  return waiting != 0 && (waiting & internal::kGaveUp) == 0;
}

Result<base::Fd> open_pidfd(int pid) {
  base::Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd.valid()) return base::from_errno("watch process " + std::to_string(pid), errno);
  return fd;
}

Result<std::unique_ptr<Watchdog>> Watchdog::start(std::shared_ptr<Segment> segment, int rank,
                                                  std::vector<base::Fd> pidfds,
                                                  WatchdogOptions options) {
  Descriptors own{base::Fd(::eventfd(0, EFD_CLOEXEC)), base::Fd()};
  if (!own.stop.valid()) return base::from_errno("watchdog: eventfd", errno);
  if (options.launcher > 0) {
    HANJI_ASSIGN_OR_RETURN(own.launcher, open_pidfd(options.launcher));
  }
  HANJI_ASSIGN_OR_RETURN(auto pauses, base::PauseWatch::start());
  pidfds.resize(segment->ranks());
  segment->join(rank);
  try {
    return std::unique_ptr<Watchdog>(new Watchdog(std::move(segment), rank, std::move(pidfds),
                                                  std::move(options), std::move(own),
                                                  std::move(pauses)));
  } catch (const std::system_error& error) {
    return base::no_more_processes("start the watchdog's thread", error.code().value());
  }
}

Watchdog::Watchdog(std::shared_ptr<Segment> segment, int rank, std::vector<base::Fd> pidfds,
                   WatchdogOptions options, Descriptors own, base::PauseWatch pauses)
    : segment_(std::move(segment)),
      rank_(rank),
      pidfds_(std::move(pidfds)),
      options_(std::move(options)),
      own_(std::move(own)),
      pauses_(std::move(pauses)),
      stopped_(pidfds_.size()),
      thread_(base::start_without_stop_signals([this] { run(); })) {}

Watchdog::~Watchdog() {
  const uint64_t one = 1;
  while (::write(own_.stop.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  log_verdict();
  segment_->leave(rank_);
}

void Watchdog::run() {
  while (true) {
    beat();
    const auto next = base::Deadline::after(std::min(options_.heartbeat, check_heartbeats()));
    std::vector<pollfd> polled = descriptors();
    if (::poll(polled.data(), polled.size(), next.poll_ms()) <= 0) continue;
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0) see_launcher_death();
    for (size_t rank = 0; rank < pidfds_.size(); ++rank) {
      if (polled[rank + 2].revents != 0) see_death(static_cast<int>(rank));
    }
  }
}

std::vector<pollfd> Watchdog::descriptors() const {
  std::vector<pollfd> polled = {{own_.stop.get(), POLLIN, 0}, {own_.launcher.get(), POLLIN, 0}};
  for (const base::Fd& fd : pidfds_) polled.push_back({fd.get(), POLLIN, 0});  // -1: ignored
  return polled;
}

void Watchdog::beat() { segment_->rank_state(rank_).heartbeat_ns.store(base::now_ns()); }

/// Returns how long no other rank can have missed its heartbeats: looking only as often as beating
/// would name a stopped rank up to one heartbeat late.
std::chrono::nanoseconds Watchdog::check_heartbeats() {
  // A tenth is left to write the line: a rank that stops right after a beat is named in time too.
  const int64_t beat = options_.heartbeat.count();
  const int64_t limit = options_.missed_heartbeats * beat - beat / 10;
  int64_t least = limit;
  for (int rank = 0; rank < segment_->ranks(); ++rank) {
    if (!pidfds_[rank].valid() || presence_of(*segment_, rank) != Presence::kHere) continue;
    const int64_t beat_ns = segment_->rank_state(rank).heartbeat_ns.load();
    const int64_t silent = base::now_ns() - std::max(beat_ns, base::resumed_ns());
    const bool stopped = silent > limit;
    if (!stopped) least = std::min(least, limit - silent + 1);
    if (stopped == stopped_[rank]) continue;
    stopped_[rank] = stopped;
    const std::string who = describe_rank(*segment_, rank);
    if (stopped) {
      notify(LivenessEvent::Kind::kStopped, rank,
             fmt::format("{} is stopped: no heartbeat for {}, state {}; {}", who,
                         base::format_seconds(static_cast<double>(silent) / 1e9),
                         state_of(segment_->pid(rank)), describe_last_call(segment_, rank)));
    } else {
      notify(LivenessEvent::Kind::kResumed, rank, who + " runs again");
    }
  }
  return std::chrono::nanoseconds(least);
}

void Watchdog::see_death(int rank) {
  pidfds_[rank].reset();
  if (presence_of(*segment_, rank) == Presence::kLeft) return;
  segment_->rank_state(rank).presence.store(static_cast<uint32_t>(Presence::kDead));
  wait_for_launcher_report();
  segment_->abort(rank, Code::kPeerLost,
                  fmt::format("{} died; {}; its log or the launcher tells why",
                              describe_rank(*segment_, rank), describe_last_call(segment_, rank)));
  log_verdict();
}

void Watchdog::see_launcher_death() {
  own_.launcher.reset();
  notify(LivenessEvent::Kind::kOrphaned, rank_,
         fmt::format("process {}, the launcher of this rank, died", options_.launcher));
}

void Watchdog::wait_for_launcher_report() const {
  const auto deadline = base::Deadline::after(options_.launcher_time);
  pollfd stop{own_.stop.get(), POLLIN, 0};
  while (!segment_->aborted() && !deadline.passed() && ::poll(&stop, 1, 1) == 0) {
  }
}

// The rank that is the cause has logged it already.
void Watchdog::log_verdict() {
  const uint32_t epoch = segment_->epoch();
  if (epoch_told_ == epoch || !segment_->aborted() || segment_->abort_rank() == rank_) return;
  epoch_told_ = epoch;
  notify(LivenessEvent::Kind::kEnded, segment_->abort_rank(), segment_->abort_status().message());
}

void Watchdog::notify(LivenessEvent::Kind kind, int rank, std::string text) const {
  if (options_.on_event) options_.on_event({kind, rank, std::move(text)});
}

}  // namespace hanji::shm
