#include "hanji/shm/internal/transfer.h"

#include <algorithm>
#include <cstring>

#include "hanji/shm/internal/atomic.h"
#include "hanji/shm/internal/stream_copy.h"
#include "hanji/shm/reduce.h"

namespace hanji::shm::internal {
namespace {

constexpr int64_t kGranularity = 64;             // elements; slices and vectors are multiples
constexpr size_t kCopyBlock = size_t{16} << 10;  // stays in the first-level cache for all targets

}  // namespace

std::byte* Buffers::find(const schedule::Operand& operand, int64_t index) const {
  const MemberBuffers& member = members[operand.rank];
  const auto at = [this](std::byte* base, int64_t element) {
    return base + element * static_cast<int64_t>(element_bytes);
  };
  switch (operand.place) {
    case schedule::Place::kInput:
      return at(member.input, operand.part * member.stride + operand.begin + index);
    case schedule::Place::kOutput: return at(member.output, operand.begin + index);
    case schedule::Place::kSlot: return at(member.slot, operand.begin + index);
    case schedule::Place::kResult: return at(member.result, operand.begin + index);
  }
  return nullptr;
}

int64_t Transfer::run(const schedule::Step& step, const Buffers& buffers, int64_t begin,
                      int64_t budget) {
  const int64_t affordable = budget / std::max<int64_t>(traffic(step, buffers.element_bytes), 1);
  const int64_t whole = std::max(affordable / kGranularity * kGranularity, kGranularity);
  const int64_t count = std::min(step.count - begin, whole);
  from_.clear();
  to_.clear();
  for (const auto& operand : step.from) from_.push_back(buffers.find(operand, begin));
  for (const auto& operand : step.to) to_.push_back(buffers.find(operand, begin));
  const size_t bytes = static_cast<size_t>(count) * buffers.element_bytes;
  for (const void* from : from_) note_read(from, bytes);
  for (const void* to : to_) note_write(to, bytes);
  if (step.kind == schedule::StepKind::kReduce) {
    factors_.clear();
    if (buffers.op == schedule::ReduceOp::kPremulSum) {
      for (const auto& operand : step.from) factors_.push_back(buffers.factors[operand.rank]);
    }
    reduce(buffers.dtype, buffers.op, from_, step.tree, to_, count, factors_);
  } else {
    const int64_t written = step.count * static_cast<int64_t>(step.to.size());
    copy(bytes, written * static_cast<int64_t>(buffers.element_bytes) >= kStreamBytes);
  }
  return count;
}

void Transfer::copy(size_t bytes, bool past_caches) const {
  const auto* from = static_cast<const std::byte*>(from_[0]);
  const size_t block = to_.size() == 1 ? bytes : kCopyBlock;
  for (size_t done = 0; done < bytes; done += block) {
    const size_t length = std::min(block, bytes - done);
    for (void* to : to_) {
      if (to == from) continue;
      std::byte* target = static_cast<std::byte*>(to) + done;
      past_caches ? stream_copy(target, from + done, length)
                  : static_cast<void>(std::memcpy(target, from + done, length));
    }
  }
}

}  // namespace hanji::shm::internal
