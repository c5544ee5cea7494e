#include "hanji/shm/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

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
// Arenas lie a power of two apart. Without a skew the same block of two ranks would have addresses
// that AMD's way predictor takes for one (it hashes bits 12 to 27), and a sum over both would run at
// a third of its speed: every access to one evicts the other. Five pages per rank keep them apart.
constexpr size_t kSkew = 5 * 4096;
constexpr size_t kGrowth = size_t{256} << 10;  // of arenas without large blocks

}  // namespace

Heap::Heap(std::shared_ptr<Segment> segment, int rank)
    : segment_(std::move(segment)), rank_(rank), end_(static_cast<size_t>(rank) * kSkew) {}

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
  auto taken = take(size);
  if (!taken.ok()) return taken.status().at("heap of rank " + std::to_string(rank_));
  used_[*taken] = {size, std::string(category)};
  auto counted = categories_.find(category);
  if (counted == categories_.end()) counted = categories_.emplace(category, Counted()).first;
  counted->second.now += size;
  counted->second.peak = std::max(counted->second.peak, counted->second.now);
  count(static_cast<int64_t>(size));
  const size_t offset = segment_->heap_offset(rank_) + *taken;
  std::byte* data = segment_->data() + offset;
  if (zero == Zero::kYes && *taken < fresh) std::memset(data, 0, size);
  return HeapBlock{static_cast<int64_t>(offset), data, bytes};
}

Result<size_t> Heap::take(size_t bytes) {
  if (const size_t found = take_free(bytes); found != SIZE_MAX) return found;
  HANJI_RETURN_IF_ERROR(extend(end_ + bytes));
  return std::exchange(end_, end_ + bytes);
}

// The beginning of the first range that fits.
size_t Heap::take_free(size_t bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [begin, size] = *it;
    if (bytes > size) continue;
    free_.erase(it);
    if (bytes != size) free_[begin + bytes] = size - bytes;
    return begin;
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
  categories_.find(used->second.category)->second.now -= bytes;
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
  for (const auto& [category, counted] : categories_) {
    if (counted.now > 0) bytes[category] = counted.now;
  }
  return bytes;
}

std::map<std::string, size_t> Heap::peak_usage() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, size_t> bytes;
  for (const auto& [category, counted] : categories_) bytes[category] = counted.peak;
  return bytes;
}

size_t Heap::used_bytes(int rank) const {
  return static_cast<size_t>(segment_->rank_state(rank).heap_bytes.load());
}

size_t Heap::peak_bytes(int rank) const {
  return static_cast<size_t>(segment_->rank_state(rank).heap_peak_bytes.load());
}

}  // namespace hanji::shm
