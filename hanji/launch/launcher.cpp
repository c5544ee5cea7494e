#include "hanji/launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "hanji/base/advice.h"
#include "hanji/base/file.h"
#include "hanji/base/limits.h"
#include "hanji/base/run_clock.h"
#include "hanji/base/socket.h"
#include "hanji/base/units.h"
#include "hanji/launch/flight_record.h"
#include "hanji/launch/internal/control.h"
#include "hanji/launch/internal/environment_of_rank.h"
#include "hanji/launch/internal/host_link.h"
#include "hanji/launch/internal/launch_once.h"
#include "hanji/launch/internal/sealed_file.h"
#include "hanji/launch/internal/start.h"
#include "hanji/launch/internal/supervisor.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;

constexpr int kCannotStartExit = 2;  // usage, in the table of exit codes.

/// What the ranks of one launch share, owned by the launcher.
struct Common {
  std::vector<base::Fd> streams;  ///< /dev/null in place of closed standard streams, and once more.
  std::shared_ptr<shm::Segment> segment;
  base::Fd plan;
  base::Fd hosts;
  std::vector<base::Fd> logs;
  std::vector<Echo> echoes;

  int null_device() const { return streams.back().get(); }
};

/// Descriptors 0 to 2 are streams to every program, so nothing of ours may land there.
Result<std::vector<base::Fd>> fill_streams() {
  std::vector<base::Fd> streams;
  do {
    streams.emplace_back(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!streams.back().valid()) return base::from_errno("open /dev/null", errno);
  } while (streams.back().get() <= STDERR_FILENO);
  return streams;
}

Status check(const LaunchOptions& options) {
  if (options.ranks < 1) {
    return base::invalid_argument(
        fmt::format("ranks is {}: at least one rank must be started", options.ranks));
  }
  if (!options.cpus.empty() && options.cpus.size() != static_cast<size_t>(options.ranks)) {
    return base::invalid_argument(fmt::format("CPUs are given for {} ranks, but {} are started",
                                              options.cpus.size(), options.ranks));
  }
  if (options.on_death == OnDeath::kContinue && options.hosts) {
    return base::unsupported(
        "ranks of several hosts cannot go on without one that died: leave --on-death continue out, "
        "or start all ranks on one host");
  }
  // Of each rank: both ends of its control socket, its pidfd, its log.
  return base::check_descriptors(4 * int64_t{options.ranks} + 16,
                                 fmt::format("a job of {} ranks", options.ranks));
}

int first_rank_of(const HostLink* link) { return link == nullptr ? 0 : link->here().first_rank; }

Status open_logs(const LaunchOptions& options, const HostLink* link, Common& common) {
  if (options.log_directory.empty()) return {};
  if (const Status made = base::make_directories(options.log_directory); !made.ok()) {
    return Status(made.code(), base::with_advice("the folder of logs: " + made.message(),
                                                 "name another one (hanji run: --logs)"));
  }
  const int first = first_rank_of(link);
  for (int rank = first; rank < first + options.ranks; ++rank) {
    const auto path = options.log_directory / fmt::format("rank.{}", rank);
    base::Fd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.valid()) return base::from_errno("open the log " + path.string(), errno);
    common.logs.push_back(std::move(log));
  }
  if (options.rank0_output != Rank0Output::kLogAndLauncher || first != 0) return {};
  for (const int to : {STDOUT_FILENO, STDERR_FILENO}) {
    HANJI_ASSIGN_OR_RETURN(Echo echo, Echo::create(common.logs.front().get(), to));
    common.echoes.push_back(std::move(echo));
  }
  return {};
}

Result<Common> make_common(const LaunchOptions& options, const HostLink* link, Program program) {
  HANJI_RETURN_IF_ERROR(check(options));
  Common common;
  HANJI_ASSIGN_OR_RETURN(common.streams, fill_streams());
  shm::SegmentOptions segment = options.segment;
  segment.ranks = options.ranks;
  segment.build_id = build_id_of(program);
  segment.plan_hash = plan_hash(options.plan_json);
  HANJI_ASSIGN_OR_RETURN(common.segment, shm::Segment::create(segment));
  if (!options.plan_json.empty()) {
    HANJI_ASSIGN_OR_RETURN(common.plan, write_sealed(options.plan_json, "plan"));
  }
  if (link != nullptr) {
    HANJI_ASSIGN_OR_RETURN(common.hosts, link->hosts_file());
  }
  HANJI_RETURN_IF_ERROR(open_logs(options, link, common));
  return common;
}

void direct_output(const LaunchOptions& options, const HostLink* link, const Common& common,
                   StartSpec& spec) {
  if (common.logs.empty()) return;
  const bool first = spec.rank + first_rank_of(link) == 0;
  if (first && options.rank0_output == Rank0Output::kLauncher) return;
  spec.output = spec.error = common.logs[spec.rank].get();
  if (first && !common.echoes.empty()) {
    spec.output = common.echoes[0].write_end();
    spec.error = common.echoes[1].write_end();
  }
}

/// A rank's spec, and the end of the control socket that becomes the rank's.
Result<std::pair<StartSpec, base::Fd>> spec_for(const LaunchOptions& options, const HostLink* link,
                                                const Common& common, int rank) {
  HANJI_ASSIGN_OR_RETURN(auto ends, base::socket_pair());
  StartSpec spec;
  spec.rank = rank;
  spec.control = std::move(ends.first);
  if (!options.cpus.empty()) spec.cpus = options.cpus[rank];
  direct_output(options, link, common, spec);
  return std::pair(std::move(spec), std::move(ends.second));
}

/// The pidfds of all to each. A rank that is dead already is the supervisor's affair.
Status introduce(const std::vector<RankProcess>& processes) {
  std::vector<int> pidfds;
  for (const RankProcess& process : processes) pidfds.push_back(process.pidfd());
  for (const RankProcess& process : processes) {
    const Status sent = send_peers(process.control(), pidfds);
    if (!sent.ok() && sent.code() != Code::kPeerLost) {
      return sent.at(fmt::format("introduce rank {} to its peers", process.rank()));
    }
  }
  return {};
}

Result<std::optional<SignalRelay>> relay_for(const LaunchOptions& options) {
  if (options.signals == Signals::kLeave) return std::optional<SignalRelay>();
  HANJI_ASSIGN_OR_RETURN(SignalRelay installed, SignalRelay::install());
  return std::optional(std::move(installed));
}

Result<Outcome> supervise(const LaunchOptions& options, Common& common,
                          std::vector<RankProcess> processes, SignalRelay* relay, HostLink* link) {
  for (Echo& echo : common.echoes) echo.close_write_end();
  HANJI_RETURN_IF_ERROR(introduce(processes));
  HANJI_ASSIGN_OR_RETURN(const auto pauses, base::PauseWatch::start());
  Supervisor supervisor(options, common.segment, std::move(processes));
  supervisor.watch(relay);
  supervisor.watch(link);
  supervisor.watch(std::move(common.echoes));
  Outcome outcome = supervisor.run();
  if (outcome.first_failed >= 0 && !options.log_directory.empty()) {
    const Status kept = write_flight_record(*common.segment, options.log_directory);
    // The cause is told already; a full disk may be it.
    if (!kept.ok() && options.on_event) {
      options.on_event({RankEventKind::kNotKept, -1, -1,
                        "the last calls of the ranks are not kept: " + kept.message()});
    }
  }
  return outcome;
}

/// A forked rank, from here to its end.
int run_body(const RankBody& body, Inherited inherited) {
  const auto report_fd = inherited.endpoints.control.duplicate();
  auto peers = receive_peers(inherited.endpoints.control.get(), inherited.endpoints.rank,
                             inherited.endpoints.size, base::Deadline::after(60s));
  Status status = peers.status();
  if (peers.ok()) {
    inherited.endpoints.pidfds = *std::move(peers);
    status = body(std::move(inherited));
  }
  if (status.ok()) return 0;
  // The exit code tells the parent even if the words do not arrive.
  if (report_fd.ok()) static_cast<void>(send_report(report_fd->get(), status));
  return 1;
}

std::string describe_hosts(const HostLink& link) {
  std::string text = fmt::format("{} on {}:", base::counted(link.world_size(), "rank"),
                                 base::counted(std::ssize(link.nodes()), "host"));
  for (const Node& node : link.nodes()) {
    text += fmt::format(" {}-{} on {} ({})", node.first_rank, node.first_rank + node.num_ranks - 1,
                        node.name, node.address);
  }
  return text + fmt::format("; here is node {}", link.node());
}

/// Where programs of other kinds may meet: torchrun tells it too. What the user set stays on one
/// host.
base::HostPort master_of(const HostLink* link) {
  if (link != nullptr) return link->master();
  if (base::read(base::Variable::kMasterAddr) && base::read(base::Variable::kMasterPort)) return {};
  const auto probe = base::listen_tcp({"127.0.0.1", 0});
  if (!probe.ok()) return {};
  auto place = base::local_place(probe->get());
  return place.ok() ? *std::move(place) : base::HostPort{};
}

Announcement announcement_of(const LaunchOptions& options, const HostLink* link,
                             const Common& common) {
  Announcement told;
  told.size = told.world_size = options.ranks;
  told.segment = common.segment->fd();
  told.plan = common.plan.get();
  told.same_program = options.program == Program::kThis ? 1 : 0;
  if (link == nullptr) return told;
  told.hosts = common.hosts.get();
  told.first_rank = link->here().first_rank;
  told.world_size = link->world_size();
  told.node = link->node();
  told.num_nodes = static_cast<int>(link->nodes().size());
  return told;
}

Result<Outcome> start_and_supervise(const LaunchOptions& options, SignalRelay* relay,
                                    HostLink* link) {
  HANJI_ASSIGN_OR_RETURN(Common common, make_common(options, link, options.program));
  HANJI_ASSIGN_OR_RETURN(StartReport report, StartReport::create());
  const base::HostPort master = master_of(link);
  Announcement told = announcement_of(options, link, common);
  std::vector<RankProcess> processes;
  for (int rank = 0; rank < options.ranks; ++rank) {
    HANJI_ASSIGN_OR_RETURN(auto made, spec_for(options, link, common, rank));
    auto& [spec, control] = made;
    spec.input = common.null_device();
    spec.command = options.command;
    spec.holds_stop_signals = options.saves_at_stop;
    spec.inherited = {common.segment->fd(), control.get()};
    if (common.plan.valid()) spec.inherited.push_back(common.plan.get());
    if (common.hosts.valid()) spec.inherited.push_back(common.hosts.get());
    told.rank = rank;
    told.control = control.get();
    spec.environment = environment_of_rank(options, told, master);
    HANJI_ASSIGN_OR_RETURN(RankProcess process, start_program(std::move(spec), report));
    processes.push_back(std::move(process));
  }
  HANJI_RETURN_IF_ERROR(report.wait_for_all(options.command));
  return supervise(options, common, std::move(processes), relay, link);
}

}  // namespace

Result<Outcome> launch(const LaunchOptions& options) {
  HANJI_ASSIGN_OR_RETURN(auto relay, relay_for(options));
  return launch_once(options, relay ? &*relay : nullptr);
}

Result<Outcome> launch_once(const LaunchOptions& options, SignalRelay* relay) {
  if (options.command.empty()) return base::invalid_argument("launch: there is no command to run");
  if (!options.hosts) return start_and_supervise(options, relay, nullptr);
  HANJI_RETURN_IF_ERROR(check(options));
  const auto notify = [&](RankEventKind kind, const std::string& text) {
    if (options.on_event) options.on_event({kind, -1, -1, text});
  };
  HostLink::Opening opening;
  opening.relay = relay;
  opening.on_refused = [&](const std::string& text) { notify(RankEventKind::kRefused, text); };
  auto link = HostLink::open(*options.hosts, options.ranks, opening);
  if (opening.signal != 0) {
    Outcome stopped;
    stopped.stop_signal = opening.signal;
    stopped.exit_code = 128 + opening.signal;
    stopped.cause = fmt::format("signal {} came while hosts were awaited", opening.signal);
    return stopped;
  }
  if (!link.ok()) return link.status();
  notify(RankEventKind::kJoined, describe_hosts(**link));
  auto outcome = start_and_supervise(options, relay, link->get());
  // The others must not wait for ranks that never started.
  if (!outcome.ok()) {
    (*link)->send_verdict(
        kCannotStartExit,
        fmt::format("node {} (host {}) could not start its ranks: {}", (*link)->node(),
                    (*link)->here().name, outcome.status().message()));
  }
  return outcome;
}

Result<Outcome> fork_ranks(const LaunchOptions& options, const RankBody& body) {
  if (options.hosts) {
    return base::unsupported(
        "copies of a process run on its own host; launch a program on several");
  }
  HANJI_ASSIGN_OR_RETURN(Common common, make_common(options, nullptr, Program::kThis));
  std::vector<RankProcess> processes;
  for (int rank = 0; rank < options.ranks; ++rank) {
    HANJI_ASSIGN_OR_RETURN(auto made, spec_for(options, nullptr, common, rank));
    auto& [spec, control] = made;
    const auto rank_main = [&, rank] {
      for (RankProcess& sibling : processes) sibling.forget();
      auto segment = base::Fd(::fcntl(common.segment->fd(), F_DUPFD_CLOEXEC, 0));
      Inherited inherited;
      inherited.plan_json = options.plan_json;
      inherited.build_id = build_id_of(Program::kThis);
      inherited.endpoints.segment = std::move(segment);
      inherited.endpoints.control = std::move(control);
      inherited.endpoints.rank = rank;
      inherited.endpoints.size = options.ranks;
      return run_body(body, std::move(inherited));
    };
    HANJI_ASSIGN_OR_RETURN(RankProcess process, start_copy(std::move(spec), rank_main));
    processes.push_back(std::move(process));
  }
  // Only now: a handler of ours would live on in the copies.
  HANJI_ASSIGN_OR_RETURN(auto relay, relay_for(options));
  return supervise(options, common, std::move(processes), relay ? &*relay : nullptr, nullptr);
}

}  // namespace hanji::launch
