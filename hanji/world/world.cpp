#include "hanji/world/world.h"

#include <unistd.h>

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <numeric>
#include <system_error>
#include <utility>

#include "hanji/base/cache_folder.h"
#include "hanji/base/exception.h"
#include "hanji/base/limits.h"
#include "hanji/base/log.h"
#include "hanji/comm/fit_costs.h"
#include "hanji/comm/regroup.h"
#include "hanji/world/internal/hosts.h"
#include "hanji/world/internal/state.h"
#include "hanji/world/internal/vector_math.h"

namespace hanji::world {
namespace {

using namespace std::chrono_literals;

/// A launcher of ours knows what a rank died of; peers throw within 100 ms in any case.
constexpr auto kLauncherTime = 50ms;

/// Of this one.
std::vector<int> ranks_of_node(const launch::Hosts& hosts) {
  std::vector<int> ranks;
  for (int rank = 0; rank < hosts.world_size; ++rank) {
    if (hosts.node_of(rank) == hosts.node) ranks.push_back(rank);
  }
  return ranks;
}

/// On all hosts, unless another word has ended it here: then that one is told to them.
void end_job(const WorldState& state, const std::string& words) {
  state.segment->abort(state.endpoints.rank, Code::kPeerLost, words);
  const Status verdict = state.segment->abort_status();
  launch::notify_hosts(state.hosts, verdict.ok() ? words : verdict.message());
}

}  // namespace

World::World(std::unique_ptr<WorldState> state) : state_(std::move(state)) {}
World::World(World&& other) noexcept = default;

World& World::operator=(World&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

World::~World() {
  if (state_ == nullptr || std::uncaught_exceptions() <= state_->exceptions_before) return;
  end_job(*state_,
          fmt::format("rank {} was left by an exception (host {}, process {}), whose words its "
                      "own log may tell; a program that catches it outside of its World calls "
                      "World::fail() for the others to know",
                      rank(), state_->hosts.here().name, ::getpid()));
}

int World::rank() const { return state_->hosts.rank; }
int World::size() const { return state_->hosts.world_size; }
int World::num_nodes() const { return state_->hosts.num_nodes(); }

std::vector<int> World::ranks_per_node() const {
  std::vector<int> ranks;
  for (const auto& node : state_->hosts.nodes) ranks.push_back(node.num_ranks);
  return ranks;
}

comm::Group World::joined_by(HostEngine engine, comm::GroupOptions options) const {
  if (num_nodes() == 1) {
    throw Error(base::invalid_argument(fmt::format(
        "group {}: all ranks are on one host, where nothing joins hosts", options.name)));
  }
  const std::vector<int> here = ranks_of_node(state_->hosts);
  comm::GroupOptions inner = options;
  inner.name = fmt::format("{} on node {}", options.name, state_->hosts.node);
  inner.recorder = nullptr;
  ConnectOptions by;
  by.between_hosts = engine;
  return join_hosts(comm::regroup(group(), here, std::move(inner)), state_->hosts, by,
                    std::move(options));
}

int World::local_rank() const { return state_->endpoints.rank; }
const comm::Group& World::group() const { return *state_->group; }
comm::Heap& World::heap() const { return state_->group->heap(); }
trace::Recorder* World::recorder() const { return &state_->recorder; }
const std::string& World::plan_json() const { return state_->plan_json; }

mesh::Mesh World::mesh(std::vector<layout::Axis> axes) const {
  mesh::Mesh mesh(group(), std::move(axes));
  recorder()->set_coordinates(layout::describe_coordinates(mesh.shape(), rank()));
  return mesh;
}

void World::fail(const Status& status) const { world::fail(*state_, status); }
void World::fail(std::string_view text) const { fail(base::invalid_argument(std::string(text))); }

std::string World::verdict() const {
  const shm::Segment& segment = *state_->segment;
  const bool is_others = segment.aborted() && segment.abort_rank() != local_rank();
  return is_others ? segment.abort_status().message() : "";
}

void fail(const WorldState& state, const Status& status) {
  const int rank = state.endpoints.rank;
  end_job(state, fmt::format("{} failed: {}; {}", shm::describe_rank(*state.segment, rank),
                             launch::describe_status(status),
                             shm::describe_last_call(state.segment, rank)));
  launch::report_failure(state.endpoints, status);
}

namespace {

/// Each survivor says in its own log what ended the job, and when.
shm::WatchdogOptions watchdog_options(const Place& place, const ConnectOptions& options) {
  using Kind = shm::LivenessEvent::Kind;
  shm::WatchdogOptions watchdog;
  watchdog.launcher = place.launcher;
  watchdog.launcher_time = place.endpoints.control.valid() ? kLauncherTime : 0ms;
  watchdog.on_event = [log = base::Log(STDERR_FILENO, fmt::format("rank {}", place.hosts.rank)),
                       hosts = place.hosts,
                       told = options.on_liveness](const shm::LivenessEvent& event) {
    const bool ended = event.kind == Kind::kEnded;
    const bool orphaned = event.kind == Kind::kOrphaned;
    ended ? log.error(event.text)
          : log.warn(event.text + (orphaned ? "; this rank gets TERM" : ""));
    if (told) told(event);
    // As a scheduler would stop it: a rank that saves at TERM does so.
    if (orphaned) ::kill(::getpid(), SIGTERM);
    if (ended) launch::propose_to_hosts(hosts, event.text);
  };
  return watchdog;
}

/// The ranks of this host. Where nobody has said how calls are chosen, by the costs that were fitted
/// on this machine.
comm::Group make_local_group(const WorldState& state, comm::GroupOptions options, bool may_meet) {
  std::vector<int> members(state.endpoints.size);
  std::iota(members.begin(), members.end(), 0);
  const auto over_shm = [&](comm::GroupOptions chosen) {
    return comm::Group::over_shm(state.segment, 0, members, state.endpoints.rank,
                                 std::move(chosen));
  };
  if (options.chooser || !may_meet || members.size() == 1) return over_shm(std::move(options));
  comm::GroupOptions meeting = options;
  meeting.recorder = nullptr;
  return comm::with_kept_costs(over_shm(std::move(meeting)), std::move(options),
                               base::cache_folder());
}

/// Of all ranks, in shared memory or, over several hosts, also by what joins them.
comm::Group make_group(WorldState& state, const ConnectOptions& options, bool may_meet) {
  comm::GroupOptions group = options.group;
  if (options.configure) options.configure(state.plan_json, group);
  group.recorder = &state.recorder;
  if (state.hosts.num_nodes() == 1) return make_local_group(state, std::move(group), may_meet);
  comm::GroupOptions here = group;
  here.name = fmt::format("{} on node {}", group.name, state.hosts.node);
  here.recorder = nullptr;
  here.rank_names = group.rank_names.part(ranks_of_node(state.hosts));
  return join_hosts(make_local_group(state, std::move(here), may_meet), state.hosts, options,
                    std::move(group));
}

/// An error that every rank has by itself.
bool is_known_to_peers(Code code) {
  return code != Code::kInvalidArgument && code != Code::kOutOfMemory && code != Code::kInternal;
}

/// For hanji debug, which sees this host alone.
void describe_other_hosts(const launch::Hosts& hosts, shm::Segment& segment) {
  std::string lines;
  for (const launch::Node& node : hosts.nodes) {
    if (node == hosts.here()) continue;
    lines += fmt::format("{} {} {}({})\n", node.first_rank, node.num_ranks,
                         node.name.empty() ? "?" : node.name, node.address);
  }
  if (!lines.empty()) segment.describe_other_hosts(lines);
}

}  // namespace

World enter(Place place, const ConnectOptions& options) {
  resolve_vector_math();
  auto recorder = trace::Recorder::format(place.segment->trace_memory(place.endpoints.rank),
                                          place.hosts.rank, place.hosts.world_size);
  describe_other_hosts(place.hosts, *place.segment);
  const shm::WatchdogOptions watchdog = watchdog_options(place, options);
  const bool may_meet = place.alone_in_process;
  auto pidfds = std::move(place.endpoints.pidfds);
  auto state =
      std::unique_ptr<WorldState>(new WorldState{.hosts = std::move(place.hosts),
                                                 .endpoints = std::move(place.endpoints),
                                                 .plan_json = std::move(place.plan_json),
                                                 .segment = std::move(place.segment),
                                                 .recorder = recorder,
                                                 .watchdog = nullptr,
                                                 .group = std::nullopt,
                                                 .exceptions_before = std::uncaught_exceptions()});
  try {
    state->watchdog =
        shm::Watchdog::start(state->segment, state->endpoints.rank, std::move(pidfds), watchdog)
            .or_throw();
    state->group = make_group(*state, options, may_meet);
  } catch (const Error& error) {
    if (is_known_to_peers(error.code())) throw;
    // They have met it: they would wait for it, or see it die without a word.
    state->segment->abort(
        state->endpoints.rank, Code::kPeerLost,
        fmt::format("{} could not take part: {}",
                    shm::describe_rank(*state->segment, state->endpoints.rank), error.what()));
    throw;
  }
  shm::forget_last_call(*state->segment, state->endpoints.rank);
  if (may_meet) {
    state->uncaught.emplace(
        [own = state.get()](const std::string& text) { fail(*own, base::invalid_argument(text)); });
  }
  return World(std::move(state));
}

Place attach(launch::Inherited inherited) {
  Place place;
  place.segment = shm::Segment::attach(std::move(inherited.endpoints.segment), inherited.build_id,
                                       launch::plan_hash(inherited.plan_json))
                      .or_throw();
  place.endpoints = std::move(inherited.endpoints);
  place.plan_json = std::move(inherited.plan_json);
  place.hosts.rank = place.hosts.local_rank = place.endpoints.rank;
  place.hosts.world_size = place.hosts.nodes[0].num_ranks = place.endpoints.size;
  return place;
}

Status status_of(std::exception_ptr exception) {
  try {
    std::rethrow_exception(std::move(exception));
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      return base::internal(base::describe_exception(std::current_exception()));
    }
    return base::no_more_processes("start a thread", error.code().value());
  } catch (const std::exception& error) {
    if (base::is_out_of_memory(error)) {
      return base::out_of_memory(base::describe_exception(std::current_exception()));
    }
    return base::internal(base::describe_exception(std::current_exception()));
  } catch (...) {
    return base::internal(base::describe_exception(std::current_exception()));
  }
}

}  // namespace hanji::world
