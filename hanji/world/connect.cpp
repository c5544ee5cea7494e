#include "hanji/world/connect.h"

#include <utility>

#include "hanji/launch/environment.h"
#include "hanji/launch/inherited.h"
#include "hanji/launch/rendezvous.h"
#include "hanji/world/internal/state.h"

namespace hanji::world {

World connect(const ConnectOptions& options) {
  const launch::Identity identity = launch::detect().or_throw();
  if (identity.source == launch::Source::kHanji) {
    return enter(launch::inherited_endpoints().or_throw(), options);
  }
  launch::MeetOptions meeting;
  meeting.deadline = options.meet_deadline;
  meeting.segment.heap_bytes_per_rank = options.heap_bytes_per_rank;
  meeting.segment.trace_events = options.trace_events;
  meeting.segment.build_id = launch::build_id_of(launch::Program::kThis);
  meeting.segment.plan_hash = launch::plan_hash(options.plan_json);
  launch::Inherited met{.endpoints = launch::meet(identity, meeting).or_throw(),
                        .plan_json = options.plan_json,
                        .build_id = meeting.segment.build_id};
  return enter(std::move(met), options);
}

}  // namespace hanji::world
