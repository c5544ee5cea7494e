#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "hanji/schedule/step_list.h"
#include "hanji/shm/engine.h"
#include "hanji/shm/heap.h"
#include "hanji/shm/segment.h"
#include "hanji/test/run_threads.h"

/// What the tests of this folder share: a segment, and an engine per rank.
namespace hanji::shm::internal {

inline std::shared_ptr<Segment> make_segment(int ranks, size_t heap_bytes = size_t{256} << 20) {
  SegmentOptions options;
  options.ranks = ranks;
  options.heap_bytes_per_rank = heap_bytes;
  options.trace_events = 64;
  return Segment::create(options).or_throw();
}

/// One rank of a group of all ranks, as a test sees it.
struct Member {
  std::shared_ptr<Segment> segment;
  int rank;
  Engine& engine;
  Heap& heap;

  template <class T>
  T* allocate(int64_t count) {
    return reinterpret_cast<T*>(
        heap.allocate(static_cast<size_t>(count) * sizeof(T), "test").or_throw().data);
  }
  /// submit and wait.
  Status call(const Call& call) {
    HANJI_ASSIGN_OR_RETURN(const uint64_t ticket, engine.submit(call));
    return engine.wait(ticket);
  }
};

inline void run_member(const std::shared_ptr<Segment>& segment, int rank,
                       const EngineOptions& options, const std::function<void(Member&)>& body) {
  std::vector<int> members(segment->ranks());
  std::iota(members.begin(), members.end(), 0);
  auto engine = Engine::create(segment, 0, members, rank, options).or_throw();
  Heap heap(segment, rank);
  Member member{segment, rank, *engine, heap};
  body(member);
}

/// Ranks as threads of this process.
inline void run_group(int ranks, const std::function<void(Member&)>& body,
                      const EngineOptions& options = {}) {
  const auto segment = make_segment(ranks);
  test::run_threads(ranks, [&](int rank) { run_member(segment, rank, options, body); });
}

inline std::shared_ptr<const schedule::StepList> share(schedule::StepList list) {
  return std::make_shared<const schedule::StepList>(std::move(list));
}

/// A call of `list` without buffers.
inline Call call_of(const std::shared_ptr<const schedule::StepList>& list) {
  Call call;
  call.routine = list->routine;
  call.count = list->count;
  call.root = list->root;
  call.steps = list;
  return call;
}

}  // namespace hanji::shm::internal
