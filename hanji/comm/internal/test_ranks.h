#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hanji/comm/group.h"
#include "hanji/shm/segment.h"
#include "hanji/test/run_threads.h"

/// What the tests of this folder share.
namespace hanji::comm::internal {

inline std::shared_ptr<shm::Segment> make_segment(int ranks) {
  shm::SegmentOptions options;
  options.ranks = ranks;
  options.heap_bytes_per_rank = size_t{256} << 20;
  options.trace_events = 256;
  return shm::Segment::create(options).or_throw();
}

/// Calls body(group) on one thread per rank, over one segment of this process. Throws the first
/// exception of any rank.
inline void run_ranks(int ranks, const std::function<void(const Group&)>& body,
                      const GroupOptions& options = {}) {
  const auto segment = make_segment(ranks);
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  test::run_threads(ranks, [&](int rank) {
    GroupOptions mine = options;
    mine.deadline = std::min<std::chrono::nanoseconds>(mine.deadline, std::chrono::seconds(60));
    body(Group::over_shm(segment, 0, members, rank, mine));
  });
}

/// "code: message" of what `call` throws; "accepted" if nothing.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(base::name_of(error.code())) + ": " + error.what();
  }
  return "accepted";
}

/// Where a test's tensor lies.
enum class Where { kHeap, kPrivate, kMixed };

/// `values` on a heap tensor or a private one; mixed: private on rank 0 only.
inline at::Tensor place(const at::Tensor& values, Where where, const Group& group) {
  const bool in_heap = where == Where::kHeap || (where == Where::kMixed && group.rank() != 0);
  if (!in_heap) return values.clone();
  at::Tensor tensor = group.heap().empty(values.sizes(), values.scalar_type(), "test");
  tensor.copy_(values);
  return tensor;
}

inline constexpr int64_t kCounts[] = {0, 1, 7, 65537};
inline constexpr Where kPlaces[] = {Where::kHeap, Where::kPrivate, Where::kMixed};

/// Small whole numbers, different at each index and rank, exact in every type.
inline at::Tensor numbers(int64_t count, int rank, c10::ScalarType type = at::kFloat) {
  return (at::arange(count, at::kLong).remainder(13) + rank).to(type);
}

/// Calls body(group, count, where) on every rank, for each number of ranks, count and place.
inline void for_each_case(std::span<const int> rank_counts,
                          const std::function<void(const Group&, int64_t, Where)>& body) {
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [&](const Group& group) {
      for (const int64_t count : kCounts) {
        for (const Where where : kPlaces) body(group, count, where);
      }
    });
  }
}

}  // namespace hanji::comm::internal
