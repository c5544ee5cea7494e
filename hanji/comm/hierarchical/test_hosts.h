#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/comm/hierarchical/group.h"
#include "hanji/test/run_group.h"
#include "hanji/test/run_threads.h"
#include "hanji/trace/recorder.h"

namespace hanji::comm::hierarchical {

/// Calls body(group) on one thread per rank, ranks[h] of them on "host" h of this process: shared memory
/// within each, between them what `join_of` gives for each rank. Throws the first exception of any rank.
inline void run_hosts(const std::vector<int>& ranks, const std::function<Join(int rank)>& join_of,
                      const std::function<void(const Group&)>& body) {
  std::vector<int> host_of;
  std::vector<std::shared_ptr<shm::Segment>> segments;
  for (const int here : ranks) {
    host_of.insert(host_of.end(), here, static_cast<int>(segments.size()));
    segments.push_back(test::make_segment(here));
  }
  test::run_threads(static_cast<int>(host_of.size()), [&](int rank) {
    GroupOptions options;
    options.deadline = std::chrono::seconds(60);
    const auto place =
        static_cast<int>(std::count(host_of.begin(), host_of.begin() + rank, host_of[rank]));
    const auto& segment = segments[host_of[rank]];
    // As in a world: the segment knows what its ranks are called among all.
    trace::Recorder::format(segment->trace_memory(place), rank, static_cast<int>(host_of.size()));
    Group local = Group::over_shm(segment, 0, test::first_ranks(segment->ranks()), place, options);
    if (ranks.size() == 1) return body(local);
    body(make_group(std::move(local), {host_of, rank}, join_of(rank), options));
  });
}

}  // namespace hanji::comm::hierarchical
