#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/schedule/operation.h"
#include "hanji/schedule/step_list.h"
#include "hanji/shm/reduce.h"

namespace hanji::shm::internal {

/// Where the buffers of one member lie in this process.
struct MemberBuffers {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* slot = nullptr;
  std::byte* result = nullptr;
  int64_t stride = 0;  ///< Elements from one part of the input to the next.
};

/// The buffers of one call, and what its elements are.
struct Buffers {
  std::vector<MemberBuffers> members;
  DType dtype = DType::kFloat32;
  size_t element_bytes = 4;
  schedule::ReduceOp op = schedule::ReduceOp::kSum;
  Rounding rounding = Rounding::kOnce;
  std::vector<double> factors;  ///< By member; of premul_sum.

  /// The address of element `index` of an operand.
  std::byte* find(const schedule::Operand& operand, int64_t index) const {
    const MemberBuffers& member = members[operand.rank];
    const auto width = static_cast<int64_t>(element_bytes);
    const int64_t at = (operand.begin + index) * width;
    switch (operand.place) {
      case schedule::Place::kInput: return member.input + at + operand.part * member.stride * width;
      case schedule::Place::kOutput: return member.output + at;
      case schedule::Place::kSlot: return member.slot + at;
      case schedule::Place::kResult: return member.result + at;
    }
    return nullptr;
  }
};

/// Runs copy and reduce steps, piece by piece. Reused from call to call: no allocation once it
/// has seen the largest step.
class Transfer {
 public:
  /// Runs elements of `step` from `begin` on, for about `budget` bytes of memory traffic, at
  /// least 64 elements. Returns how many elements.
  int64_t run(const schedule::Step& step, const Buffers& buffers, int64_t begin, int64_t budget);

  /// Runs the whole of a step of a few elements.
  void run_small(const schedule::Step& step, const Buffers& buffers);

  /// Bytes that one element of the step moves.
  static int64_t traffic(const schedule::Step& step, size_t element_bytes) {
    return static_cast<int64_t>((step.from.size() + step.to.size()) * element_bytes);
  }

 private:
  void aim(const schedule::Step& step, const Buffers& buffers, int64_t begin, size_t bytes);
  void reduce_to(const schedule::Step& step, const Buffers& buffers, int64_t count);
  void copy(size_t bytes, bool past_caches) const;

  std::vector<const void*> from_;
  std::vector<void*> to_;
  std::vector<double> factors_;
};

}  // namespace hanji::shm::internal
