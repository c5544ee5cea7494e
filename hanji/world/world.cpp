#include "hanji/world/world.h"

#include <unistd.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <numeric>
#include <utility>

#include "hanji/base/log.h"
#include "hanji/world/internal/state.h"

namespace hanji::world {
namespace {

using namespace std::chrono_literals;

/// A launcher of ours knows what a rank died of; peers throw within 100 ms in any case.
constexpr auto kLauncherTime = 50ms;

}  // namespace

World::World(std::unique_ptr<WorldState> state) : state_(std::move(state)) {}
World::World(World&& other) noexcept = default;

World& World::operator=(World&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

World::~World() {
  if (state_ == nullptr || std::uncaught_exceptions() <= state_->exceptions_before) return;
  state_->segment->abort(rank(), Code::kPeerLost,
                         fmt::format("rank {} was left by an exception", rank()));
}

int World::rank() const { return state_->endpoints.rank; }
int World::size() const { return state_->endpoints.size; }
int World::local_rank() const { return state_->endpoints.rank; }
const comm::Group& World::group() const { return *state_->group; }
comm::Heap& World::heap() const { return state_->group->heap(); }
trace::Recorder* World::recorder() const { return &state_->recorder; }
const std::string& World::plan_json() const { return state_->plan_json; }

mesh::Mesh World::mesh(std::vector<layout::Axis> axes) const {
  return mesh::Mesh(group(), std::move(axes));
}

void World::fail(const Status& status) const {
  state_->segment->abort(
      rank(), Code::kPeerLost,
      fmt::format("{} failed: {}; {}", shm::describe_rank(*state_->segment, rank()),
                  status.to_string(), shm::describe_last_call(state_->segment, rank())));
  launch::report_failure(state_->endpoints, status);
}

namespace {

/// Each survivor says in its own log what ended the job, and when.
shm::WatchdogOptions watchdog_options(const shm::Endpoints& endpoints,
                                      const ConnectOptions& options) {
  using Kind = shm::LivenessEvent::Kind;
  shm::WatchdogOptions watchdog;
  watchdog.launcher_time = endpoints.control.valid() ? kLauncherTime : 0ms;
  watchdog.on_event = [log = base::Log(STDERR_FILENO, fmt::format("rank {}", endpoints.rank)),
                       told = options.on_liveness](const shm::LivenessEvent& event) {
    event.kind == Kind::kEnded ? log.error(event.text) : log.warn(event.text);
    if (told) told(event);
  };
  return watchdog;
}

}  // namespace

World enter(std::shared_ptr<shm::Segment> segment, shm::Endpoints endpoints, std::string plan_json,
            const ConnectOptions& options) {
  const int rank = endpoints.rank;
  const int size = endpoints.size;
  auto recorder = trace::Recorder::format(segment->trace_memory(rank), rank, size);
  auto state =
      std::unique_ptr<WorldState>(new WorldState{.endpoints = std::move(endpoints),
                                                 .plan_json = std::move(plan_json),
                                                 .segment = segment,
                                                 .recorder = recorder,
                                                 .watchdog = nullptr,
                                                 .group = std::nullopt,
                                                 .exceptions_before = std::uncaught_exceptions()});
  state->watchdog = shm::Watchdog::start(segment, rank, std::move(state->endpoints.pidfds),
                                         watchdog_options(state->endpoints, options))
                        .or_throw();
  comm::GroupOptions group = options.group;
  if (options.configure) options.configure(state->plan_json, group);
  group.recorder = &state->recorder;
  std::vector<int> members(size);
  std::iota(members.begin(), members.end(), 0);
  state->group = comm::Group::over_shm(segment, 0, std::move(members), rank, std::move(group));
  return World(std::move(state));
}

World enter(launch::Inherited inherited, const ConnectOptions& options) {
  auto segment = shm::Segment::attach(std::move(inherited.endpoints.segment), inherited.build_id,
                                      launch::plan_hash(inherited.plan_json))
                     .or_throw();
  return enter(std::move(segment), std::move(inherited.endpoints), std::move(inherited.plan_json),
               options);
}

Status status_of(std::exception_ptr exception) {
  try {
    std::rethrow_exception(std::move(exception));
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const c10::Error& error) {
    return base::internal(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return base::internal(error.what());
  } catch (...) {
    return base::internal("an exception that is no std::exception");
  }
}

}  // namespace hanji::world
