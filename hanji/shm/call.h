#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "hanji/base/dtype.h"
#include "hanji/schedule/operation.h"
#include "hanji/schedule/step_list.h"

namespace hanji::shm {

/// The tag of a call by which an engine over several hosts compares what its ranks were called with: the
/// call site is that of their call.
inline constexpr uint64_t kComparisonTag = ~uint64_t{0};

/// One rank's side of a collective. All ranks of the group give the same routine, op, dtype,
/// count, root, tag and lists; input, output, parts, factor,
/// deadline and call site are each rank's own.
struct Call {
  schedule::Routine routine = schedule::Routine::kBarrier;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  int64_t count = 0;  ///< StepList::count, which also says how long input and output are.
  int root = 0;
  double factor = 1;  ///< kPremulSum: what this rank's elements count times; its own.
  uint64_t tag = 0;   ///< Tells calls of equal shape apart, e.g. the bucket's number.
  /// They belong to the engine until the call is done. May be the same memory (StepList, Shape).
  const void* input = nullptr;
  void* output = nullptr;
  int64_t input_stride = 0;  ///< kTreeReduce: elements from one part of the input to the next.
  int num_parts = 1;
  /// Runs if every buffer that it touches from another rank lies in the heap.
  std::shared_ptr<const schedule::StepList> steps;
  /// Runs otherwise. Without it, such a call is refused on every rank.
  std::shared_ptr<const schedule::StepList> steps_if_private;
  /// How long this call may wait for a peer; 0: EngineOptions::deadline.
  std::chrono::nanoseconds deadline{0};
  uint32_t call_site = 0;  ///< CallSites::intern().
  std::string label;       ///< For people: what is communicated.

  bool operator==(const Call&) const = default;
};

}  // namespace hanji::shm
