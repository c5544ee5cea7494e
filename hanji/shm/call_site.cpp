#include "hanji/shm/call_site.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "hanji/base/checksum.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/shm/segment.h"

namespace hanji::shm {

using internal::SiteTable;

namespace {

std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

uint64_t hash(std::string_view text) {
  return base::xxh3(std::as_bytes(std::span(text.data(), text.size())));
}

uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

// Open addressing with keys that are never removed: readers need no lock.
struct CallSites::Cache {
  static constexpr size_t kSlots = 2 * SiteTable::kEntries;
  struct Slot {
    std::atomic<uint64_t> key;
    uint32_t id;
  };
  std::array<Slot, kSlots> slots{};
};

CallSites::CallSites(const Segment& segment)
    : segment_(segment), caches_(new std::unique_ptr<Cache>[segment.ranks()]) {
  for (int rank = 0; rank < segment.ranks(); ++rank) caches_[rank] = std::make_unique<Cache>();
}

CallSites::~CallSites() = default;

uint32_t CallSites::intern(int rank, const std::source_location& site, std::string_view label) {
  const std::array<uint64_t, 3> words = {address(site.file_name()), site.line(), hash(label)};
  const uint64_t key = base::xxh3(std::as_bytes(std::span(words)));
  if (const uint32_t id = find(*caches_[rank], key | 1)) return id;
  std::string text(file_name(site.file_name()));
  text += ":" + std::to_string(site.line());
  if (!label.empty()) text += " (" + std::string(label) + ")";
  return find_or_add(rank, key, text);
}

uint32_t CallSites::intern(int rank, std::string_view text) {
  return find_or_add(rank, hash(text), text);
}

// A key is odd, so that 0 means a free slot.
uint32_t CallSites::find_or_add(int rank, uint64_t key, std::string_view text) {
  key |= 1;
  Cache& cache = *caches_[rank];
  if (const uint32_t id = find(cache, key)) return id;
  const std::lock_guard lock(mutex_);
  if (const uint32_t id = find(cache, key)) return id;
  const uint32_t id = add(rank, text);
  if (id == 0) return 0;
  size_t at = key % Cache::kSlots;
  while (cache.slots[at].key.load(std::memory_order_relaxed) != 0) at = (at + 1) % Cache::kSlots;
  cache.slots[at].id = id;
  cache.slots[at].key.store(key, std::memory_order_release);
  return id;
}

uint32_t CallSites::find(const Cache& cache, uint64_t key) const {
  for (size_t at = key % Cache::kSlots;; at = (at + 1) % Cache::kSlots) {
    const uint64_t here = cache.slots[at].key.load(std::memory_order_acquire);
    if (here == key) return cache.slots[at].id;
    if (here == 0) return 0;
  }
}

uint32_t CallSites::add(int rank, std::string_view text) {
  SiteTable& table = segment_.site_table(rank);
  const uint32_t index = table.count.load(std::memory_order_relaxed);
  if (index + 1 >= SiteTable::kEntries) return 0;
  const size_t length = std::min(text.size(), SiteTable::kTextBytes - 1);
  std::memcpy(table.text[index + 1].data(), text.data(), length);
  table.text[index + 1][length] = '\0';
  table.count.store(index + 1, std::memory_order_release);
  return index + 1;
}

std::string CallSites::describe(int rank, uint32_t id) const {
  if (rank < 0 || rank >= segment_.ranks()) return "an unknown call site";
  const SiteTable& table = segment_.site_table(rank);
  const uint32_t count =
      std::min(table.count.load(std::memory_order_acquire), SiteTable::kEntries - 1);
  if (id == 0 || id > count) return "an unknown call site";
  const char* text = table.text[id].data();
  return std::string(text, strnlen(text, SiteTable::kTextBytes));
}

}  // namespace hanji::shm
