#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "hanji/schedule/step_list.h"
#include "hanji/shm/engine.h"
#include "hanji/shm/heap.h"
#include "hanji/shm/segment.h"
#include "hanji/test/run_threads.h"

namespace hanji::test {

/// A segment with little of everything.
inline std::shared_ptr<shm::Segment> make_segment(int ranks) {
  shm::SegmentOptions options;
  options.ranks = ranks;
  options.heap_bytes_per_rank = size_t{256} << 20;
  options.trace_events = 64;
  return shm::Segment::create(options).or_throw();
}

/// 0, 1, ..., count - 1.
inline std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// One rank of group 0, which has all ranks of its segment.
struct Member {
  std::shared_ptr<shm::Segment> segment;
  int rank;
  shm::Engine& engine;
  shm::Heap& heap;

  template <class T>
  T* allocate(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    return reinterpret_cast<T*>(heap.allocate(bytes, "test").or_throw().data);
  }
  /// submit() and wait().
  Status run(const shm::Call& call) {
    HANJI_ASSIGN_OR_RETURN(const uint64_t ticket, engine.submit(call));
    return engine.wait(ticket);
  }
};

inline void run_member(const std::shared_ptr<shm::Segment>& segment, int rank,
                       const std::function<void(Member&)>& body,
                       const shm::EngineOptions& options = {}) {
  const auto engine =
      shm::Engine::create(segment, 0, first_ranks(segment->ranks()), rank, options).or_throw();
  shm::Heap heap(segment, rank);
  Member member{segment, rank, *engine, heap};
  body(member);
}

/// Ranks as threads of this process, in one segment.
inline void run_group(int ranks, const std::function<void(Member&)>& body,
                      const shm::EngineOptions& options = {}) {
  const auto segment = make_segment(ranks);
  run_threads(ranks, [&](int rank) { run_member(segment, rank, body, options); });
}

inline std::shared_ptr<const schedule::StepList> share(schedule::StepList list) {
  return std::make_shared<const schedule::StepList>(std::move(list));
}

/// The call that a list is for, still without buffers.
inline shm::Call call_of(const std::shared_ptr<const schedule::StepList>& list) {
  shm::Call call;
  call.routine = list->routine;
  call.count = list->count;
  call.root = list->root;
  call.steps = list;
  return call;
}

}  // namespace hanji::test
