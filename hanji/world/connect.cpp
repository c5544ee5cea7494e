#include "hanji/world/connect.h"

#include <fmt/format.h>

#include <utility>

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

}  // namespace

World connect(const ConnectOptions& options) {
  const launch::Identity identity = launch::detect().or_throw();
  if (identity.local_size < identity.world_size) {
    throw Error(base::unsupported(fmt::format(
        "{} started {} of {} ranks on this host: connect() has no engine between hosts; start all "
        "ranks on one, or meet by launch::join_hosts() and an engine of your own",
        launch::name_of(identity.source), identity.local_size, identity.world_size)));
  }
  const bool inherits = identity.source == launch::Source::kHanji;
  auto inherited = inherits ? launch::inherited_endpoints().or_throw() : meet(identity, options);
  launch::report_crashes(inherited.endpoints);
  return enter(std::move(inherited), options);
}

World connect_as(const launch::Identity& identity, const ConnectOptions& options) {
  return enter(meet(identity, options), options);
}

}  // namespace hanji::world
