#pragma once

#include <atomic>
#include <cstdint>

#include "hanji/trace/event.h"

/// The bytes of a recording: Header, then num_names NameEntry, then num_events Record, all
/// little-endian and nothing between. Version 2.
namespace hanji::trace::internal {

inline constexpr uint64_t kMagic = 0x31454341'52544A48;  // "HJTRACE1"
inline constexpr uint32_t kLayoutVersion = 2;

struct Header {
  std::atomic<uint64_t> magic;  // written last
  uint32_t version;
  uint32_t num_events;
  uint32_t num_names;
  int32_t rank;
  int32_t world_size;
  std::atomic<uint32_t> coordinates;  // a name; 0: none
  int64_t wall_offset_ns;
  std::atomic<int64_t> step;
  std::atomic<uint32_t> open_spans[kNumLanes];  // by lane, the innermost; 0: none
  std::atomic<uint64_t> next;     // ticket of the next event; its slot is ticket % num_events
  std::atomic<uint64_t> skipped;  // tickets whose slot was taken
  char padding2[48];
};
static_assert(sizeof(Header) == 128);

/// Open addressing: a name lies at hash % num_names or the first free entry after it.
struct NameEntry {
  enum State : uint32_t { kEmpty, kBusy, kReady };
  std::atomic<uint32_t> state;
  uint32_t length;
  char text[120];
};
static_assert(sizeof(NameEntry) == 128);

/// stamp: 0 never written; 2 * (ticket + 1) whole; one more while being written. Words of several fields name them
/// from the lowest bit on, each with its bits.
struct Record {
  std::atomic<uint64_t> stamp;
  std::atomic<uint64_t> start_ns;
  std::atomic<uint64_t> duration;  // nanoseconds 48, lane 4, category 4, dtype 8
  std::atomic<uint64_t> step;      // step 40, routine 8, call site 16
  std::atomic<uint64_t> bytes;     // bytes 48, group + 1 16
  std::atomic<uint64_t> sequence;  // sequence + 1 48, op 8, unused 8
  std::atomic<uint64_t> name;      // ranks of the group 32, name 32
  std::atomic<uint64_t> counts;    // hash of counts 32, unused 32
};
static_assert(sizeof(Record) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

}  // namespace hanji::trace::internal
