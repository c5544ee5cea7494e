#include "hanji/world/connect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "hanji/base/env.h"
#include "hanji/base/log.h"
#include "hanji/base/run_clock.h"
#include "hanji/base/status.h"
#include "hanji/launch/environment.h"
#include "hanji/launch/inherited.h"
#include "hanji/launch/rendezvous.h"
#include "hanji/world/internal/state.h"

namespace hanji::world {
namespace {

launch::Inherited meet(const launch::Identity& identity, const ConnectOptions& options) {
  launch::MeetOptions meeting;
  meeting.deadline = options.meet_deadline;
  meeting.segment.heap_bytes_per_rank = options.heap_bytes_per_rank;
  meeting.segment.trace_events = options.trace_events;
  meeting.segment.build_id = launch::build_id_of(launch::Program::kThis);
  meeting.segment.plan_hash = launch::plan_hash(options.plan_json);
  return {.endpoints = launch::meet(identity, meeting).or_throw(),
          .plan_json = options.plan_json,
          .build_id = meeting.segment.build_id};
}

/// The process that started this rank, if it is one that ends its ranks: what a script has started with
/// variables of its own may outlive the script.
int launcher_of(const launch::Identity& identity) {
  const bool by_hand = identity.source == launch::Source::kTorchrun &&
                       !base::read(base::Variable::kTorchelasticRunId);
  return identity.source == launch::Source::kAlone || by_hand ? 0 : ::getppid();
}

/// Ranks of one host are all there; those of several meet again over the network. Where the other
/// hosts are lost, the waits of this rank end.
Place meet_all(const launch::Identity& identity, const ConnectOptions& options) {
  Place place = attach(meet(identity, options));
  place.launcher = launcher_of(identity);
  const auto lost = [segment = place.segment](const Status& why) {
    segment->abort(-1, why.code(), why.message());
  };
  place.hosts =
      launch::meet_hosts(identity, base::Deadline::after(options.meet_deadline), lost).or_throw();
  return place;
}

/// Under `hanji run` or `hanji train`, whose launcher knows all hosts.
Place inherit(const ConnectOptions& options) {
  launch::Inherited inherited = launch::inherited_endpoints().or_throw();
  launch::Hosts hosts =
      launch::join_hosts(inherited, base::Deadline::after(options.meet_deadline)).or_throw();
  Place place = attach(std::move(inherited));
  place.hosts = std::move(hosts);
  return place;
}

}  // namespace

World connect(const ConnectOptions& options) {
  const launch::Identity identity = launch::detect().or_throw();
  const auto pauses = base::PauseWatch::start().or_throw();  // from here on, then by the watchdog
  const bool inherits = identity.source == launch::Source::kHanji;
  if (identity.rank == 0 && !identity.nesting.empty()) {
    base::Log(STDERR_FILENO, "rank 0").info(identity.nesting);
  }
  Place place = inherits ? inherit(options) : meet_all(identity, options);
  launch::report_crashes(place.endpoints, place.hosts.rank);
  return enter(std::move(place), options);
}

World connect_as(const launch::Identity& identity, const ConnectOptions& options) {
  if (identity.local_size < identity.world_size) {
    throw Error(base::unsupported(fmt::format(
        "{} of {} ranks are on this host: connect_as() meets those of one; several hosts meet by "
        "connect()",
        identity.local_size, identity.world_size)));
  }
  Place place = meet_all(identity, options);
  place.launcher = 0;  // The program has its own rules: it knows its launcher better.
  return enter(std::move(place), options);
}

}  // namespace hanji::world
