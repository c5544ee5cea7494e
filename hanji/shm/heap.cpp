#include "hanji/shm/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "hanji/base/units.h"
#include "hanji/shm/internal/segment_layout.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; older kernels refuse it, which costs speed only
#endif

namespace hanji::shm {

using internal::kHugePage;
using internal::round_up;

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kGrowth = size_t{256} << 10;  // of arenas without large blocks

}  // namespace

Heap::Heap(std::shared_ptr<Segment> segment, int rank)
    : segment_(std::move(segment)), rank_(rank) {}

Result<HeapBlock> Heap::allocate(size_t bytes, std::string_view category, Zero zero) {
  const size_t limit = segment_->heap_bytes_per_rank();
  if (bytes > limit) {
    return base::out_of_memory("heap of rank " + std::to_string(rank_) + ": " +
                               base::format_bytes(static_cast<int64_t>(bytes)) + " for " +
                               std::string(category) + " exceed its " +
                               base::format_bytes(static_cast<int64_t>(limit)) + " of addresses");
  }
  const size_t size = std::max(round_up(bytes, kAlignment), kAlignment);
  const std::lock_guard lock(mutex_);
  const size_t fresh = end_;  // memory at and above was never used: it is zero
  auto taken = take(size, size >= kHugePage ? kHugePage : kAlignment);
  if (!taken.ok()) return taken.status().at("heap of rank " + std::to_string(rank_));
  used_[*taken] = {size, std::string(category)};
  count(static_cast<int64_t>(size));
  const size_t offset = segment_->heap_offset(rank_) + *taken;
  std::byte* data = segment_->data() + offset;
  if (zero == Zero::kYes && *taken < fresh) std::memset(data, 0, size);
  return HeapBlock{static_cast<int64_t>(offset), data, bytes};
}

Result<size_t> Heap::take(size_t bytes, size_t alignment) {
  if (const size_t found = take_free(bytes, alignment); found != SIZE_MAX) return found;
  const size_t begin = round_up(end_, alignment);
  HANJI_RETURN_IF_ERROR(extend(begin + bytes));
  if (begin != end_) free_[end_] = begin - end_;
  end_ = begin + bytes;
  return begin;
}

// The first range that fits. What is cut off on either side stays free.
size_t Heap::take_free(size_t bytes, size_t alignment) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [begin, size] = *it;
    const size_t aligned = round_up(begin, alignment);
    if (aligned + bytes > begin + size) continue;
    free_.erase(it);
    if (aligned != begin) free_[begin] = aligned - begin;
    const size_t rest = begin + size - aligned - bytes;
    if (rest != 0) free_[aligned + bytes] = rest;
    return aligned;
  }
  return SIZE_MAX;
}

// Backs the arena up to `end` and asks for huge pages where whole ones were added.
Status Heap::extend(size_t end) {
  if (end <= backed_) return {};
  const size_t limit = segment_->heap_bytes_per_rank();
  if (end > limit) {
    return base::out_of_memory("its " + base::format_bytes(static_cast<int64_t>(limit)) +
                               " of addresses are used up; reserve more per rank");
  }
  const size_t to =
      std::min(round_up(end, end - backed_ >= kHugePage ? kHugePage : kGrowth), limit);
  const size_t arena = segment_->heap_offset(rank_);
  HANJI_RETURN_IF_ERROR(segment_->grow(arena + backed_, to - backed_));
  const size_t first = round_up(backed_, kHugePage);
  const size_t last = to / kHugePage * kHugePage;
  // Refused where the kernel has no huge pages left for shared memory: slower, not wrong.
  if (first < last) ::madvise(segment_->data() + arena + first, last - first, MADV_COLLAPSE);
  backed_ = to;
  return {};
}

Status Heap::free(int64_t offset) {
  const std::lock_guard lock(mutex_);
  const size_t begin = static_cast<size_t>(offset) - segment_->heap_offset(rank_);
  const auto used = used_.find(begin);
  if (used == used_.end()) {
    return base::invalid_argument("heap of rank " + std::to_string(rank_) +
                                  ": no block starts at " + std::to_string(offset) +
                                  "; free what allocate() returned, once");
  }
  size_t bytes = used->second.bytes;
  used_.erase(used);
  count(-static_cast<int64_t>(bytes));
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += bytes;
      return {};
    }
  }
  free_[begin] = bytes;
  return {};
}

void Heap::count(int64_t bytes) {
  auto& state = segment_->rank_state(rank_);
  const int64_t now = state.heap_bytes.fetch_add(bytes) + bytes;
  if (now > state.heap_peak_bytes.load()) state.heap_peak_bytes.store(now);
}

bool Heap::contains(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  const std::byte* first = segment_->data() + segment_->heap_offset(0);
  return byte >= first && byte < segment_->data() + segment_->size();
}

int64_t Heap::offset_of(const void* address) const {
  return static_cast<const std::byte*>(address) - segment_->data();
}

std::map<std::string, size_t> Heap::usage() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, size_t> bytes;
  for (const auto& [offset, block] : used_) bytes[block.category] += block.bytes;
  return bytes;
}

size_t Heap::used_bytes(int rank) const {
  return static_cast<size_t>(segment_->rank_state(rank).heap_bytes.load());
}

size_t Heap::peak_bytes(int rank) const {
  return static_cast<size_t>(segment_->rank_state(rank).heap_peak_bytes.load());
}

}  // namespace hanji::shm
