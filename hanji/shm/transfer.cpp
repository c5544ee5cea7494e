#include "hanji/shm/internal/transfer.h"

#include <algorithm>
#include <cstring>

#include "hanji/shm/internal/atomic.h"
#include "hanji/shm/internal/stream_copy.h"

namespace hanji::shm::internal {
namespace {

constexpr int64_t kGranularity = 64;             // elements; slices and vectors are multiples
constexpr size_t kCopyBlock = size_t{16} << 10;  // stays in the first-level cache for all targets

}  // namespace

int64_t Transfer::run(const schedule::Step& step, const Buffers& buffers, int64_t begin,
                      int64_t budget) {
  const int64_t affordable = budget / std::max<int64_t>(traffic(step, buffers.element_bytes), 1);
  const int64_t whole = std::max(affordable / kGranularity * kGranularity, kGranularity);
  const int64_t count = std::min(step.count - begin, whole);
  const size_t bytes = static_cast<size_t>(count) * buffers.element_bytes;
  aim(step, buffers, begin, bytes);
  if (step.kind == schedule::StepKind::kReduce) {
    reduce_to(step, buffers, count);
  } else {
    const int64_t written = step.count * static_cast<int64_t>(step.to.size());
    copy(bytes, written * static_cast<int64_t>(buffers.element_bytes) >= kStreamBytes);
  }
  return count;
}

void Transfer::run_small(const schedule::Step& step, const Buffers& buffers) {
  const size_t bytes = static_cast<size_t>(step.count) * buffers.element_bytes;
  aim(step, buffers, 0, bytes);
  if (step.kind == schedule::StepKind::kReduce) return reduce_to(step, buffers, step.count);
  for (void* to : to_) {
    if (to != from_[0]) std::memcpy(to, from_[0], bytes);
  }
}

void Transfer::aim(const schedule::Step& step, const Buffers& buffers, int64_t begin,
                   size_t bytes) {
  from_.resize(step.from.size());
  to_.resize(step.to.size());
  for (size_t i = 0; i < from_.size(); ++i) {
    from_[i] = buffers.find(step.from[i], begin);
    note_read(from_[i], bytes);
  }
  for (size_t i = 0; i < to_.size(); ++i) {
    to_[i] = buffers.find(step.to[i], begin);
    note_write(to_[i], bytes);
  }
}

void Transfer::reduce_to(const schedule::Step& step, const Buffers& buffers, int64_t count) {
  factors_.clear();
  if (buffers.op == schedule::ReduceOp::kPremulSum) {
    for (const auto& operand : step.from) factors_.push_back(buffers.factors[operand.rank]);
  }
  reduce(buffers.dtype, buffers.op, from_, step.tree, to_, count, {factors_, buffers.rounding});
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
