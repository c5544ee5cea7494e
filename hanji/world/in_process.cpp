#include "hanji/world/in_process.h"

#include <utility>

#include "hanji/launch/inherited.h"
#include "hanji/world/internal/state.h"

namespace hanji::world {

std::vector<World> make_worlds(int ranks, const ConnectOptions& options) {
  shm::SegmentOptions segment_options;
  segment_options.ranks = ranks;
  segment_options.heap_bytes_per_rank = options.heap_bytes_per_rank;
  segment_options.trace_events = options.trace_events;
  segment_options.build_id = launch::build_id_of(launch::Program::kThis);
  segment_options.plan_hash = launch::plan_hash(options.plan_json);
  const auto segment = shm::Segment::create(segment_options).or_throw();
  std::vector<World> worlds;
  for (int rank = 0; rank < ranks; ++rank) {
    shm::Endpoints endpoints;
    endpoints.rank = rank;
    endpoints.size = ranks;
    endpoints.pidfds.resize(ranks);
    launch::Hosts hosts;
    hosts.rank = hosts.local_rank = rank;
    hosts.world_size = hosts.nodes[0].num_ranks = ranks;
    worlds.push_back(enter(
        {segment, std::move(endpoints), std::move(hosts), options.plan_json, false}, options));
  }
  return worlds;
}

}  // namespace hanji::world
