#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "hanji/base/limits.h"
#include "hanji/base/status.h"
#include "hanji/schedule/staging.h"
#include "hanji/shm/internal/atomic.h"

/// The bytes of a segment. Every structure starts zeroed, holds offsets and never pointers, and
/// each word has one writer unless it says otherwise.
///
///   offset          bytes                          what
///   0               4096                           Header, EpochWord, OtherHosts
///   4096            kMaxEpochs * AbortWord         why each epoch ended
///   ranks           ranks * RankState              presence, heartbeat, processors, heap sums
///   sites           ranks * SiteTable              call sites, as text
///   groups          kMaxGroups * (Waiters + ranks * GroupRank)
///   channels        ranks * ranks * (Waiters + 2 * ChannelRank)
///   trace           ranks * trace_bytes            trace::Recorder of all that a rank does, and at
///                                                  its end one of the last calls alone
///   staging         (kMaxGroups * ranks + ranks * ranks * 2) * 16 MiB
///                                                  slots and results, two sets; sparse
///   heap            ranks * heap_bytes             arenas, 2 MiB aligned; sparse
namespace hanji::shm::internal {

inline constexpr std::array<char, 8> kMagic = {'h', 'a', 'n', 'j', 'i', 's', 'h', 'm'};
inline constexpr uint32_t kVersion = 9;
inline constexpr int kMaxRanks = 64;  ///< Sets of ranks are words of 64 bits.
static_assert(base::kMaxRanksPerHost <= kMaxRanks);
inline constexpr int kMaxGroups = 256;
inline constexpr size_t kLine = 64;
inline constexpr size_t kHugePage = size_t{2} << 20;

struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t ranks;
  uint64_t total_bytes;
  uint64_t trace_bytes;  ///< Per rank, with the ring of calls.
  uint64_t heap_bytes;   ///< Per rank.
  std::array<char, 96> build_id;
  std::array<char, 96> plan_hash;
  uint64_t reserved;
  uint64_t checksum;  ///< xxh3 of the bytes before it.
};
static_assert(sizeof(Header) == 248 && offsetof(Header, checksum) == 240);

/// Of the ring that keeps a rank's last calls, at the end of its trace memory.
size_t call_ring_bytes();
inline constexpr uint32_t kCallNames = 32;  ///< One per routine.

/// Of a segment of `bytes`. Errors: kCorrupt if it is none, or of another version, or damaged.
Status check_header(const Header& header, size_t bytes);

/// Which part of the job this is. Every epoch but the last has ended by the loss of a rank.
struct alignas(kLine) EpochWord {
  Atomic<uint32_t> epoch;
  Atomic<uint64_t> lost;  ///< A bit per rank that epochs have ended without.
};
static_assert(sizeof(EpochWord) == kLine);
inline constexpr size_t kEpochOffset = 512;
inline constexpr uint32_t kMaxEpochs = kMaxRanks;

/// Why an epoch cannot go on. The first writer wins.
struct alignas(kLine) AbortWord {
  enum State : uint32_t { kNone, kClaimed, kSet };
  Atomic<uint32_t> state;
  uint32_t code;
  int32_t rank;
  uint32_t reserved;
  std::array<char, 1008> text;  ///< Zero-terminated.
};
static_assert(sizeof(AbortWord) == 1024);
inline constexpr size_t kAbortOffset = 4096;

enum class Presence : uint32_t { kAbsent, kHere, kLeft, kDead };

/// The last call by messages that a rank waited for (message_wait.h).
struct alignas(kLine) MessageWaitWords {
  using Words = std::array<uint64_t, 29>;
  Atomic<uint64_t> version;  ///< Odd while it is written; 0: never.
  Atomic<int64_t> since_ns;  ///< A time of base::now_ns(); 0: the rank waits no more.
  std::array<Atomic<uint64_t>, std::tuple_size_v<Words>> words;
};

struct RankState {
  // Written by the rank when it joins or leaves; kDead by the process that sees it die.
  alignas(kLine) Atomic<uint32_t> presence;
  Atomic<int32_t> pid;
  // What the rank waits for, or waited for until its time ran out (see pack_waiting); else 0.
  Atomic<uint64_t> waiting;
  Atomic<int64_t> heap_bytes;
  Atomic<int64_t> heap_peak_bytes;
  Atomic<int64_t> waiting_since_ns;  ///< Of base::now_ns(); stored before `waiting`.
  Atomic<uint32_t> channels_epoch;   ///< Its ends of channels were made new for this epoch.
  Atomic<uint64_t>
      last_call;  ///< Begun by the rank in any group: group + 1 << 48 | operation; or 0.
  // Own line: the watchdog's thread writes it.
  alignas(kLine) Atomic<int64_t> heartbeat_ns;
  alignas(kLine) std::array<Atomic<uint64_t>, 16> processors;  ///< Affinity mask.
  MessageWaitWords message_wait;
};
static_assert(sizeof(RankState) == 512);

/// The other hosts of the job, as text: a line "FIRST_RANK RANKS NAME" of each.
struct alignas(kLine) OtherHosts {
  enum State : uint32_t { kFree, kWritten, kSet };
  Atomic<uint32_t> state;
  std::array<char, 2044> text;  ///< Zero-terminated.
};
static_assert(sizeof(OtherHosts) == 2048);
inline constexpr size_t kOtherHostsOffset = 1024;
static_assert(kOtherHostsOffset + sizeof(OtherHosts) <= kAbortOffset);

struct SiteTable {
  static constexpr uint32_t kEntries = 1024;
  static constexpr size_t kTextBytes = 128;
  Atomic<uint32_t> count;
  std::array<std::byte, kLine - sizeof(uint32_t)> reserved;
  std::array<std::array<char, kTextBytes>, kEntries> text;  ///< Zero-terminated.
};
static_assert(sizeof(SiteTable) == 64 + 128 * 1024);

/// What a rank says at a sync; see flag_line.h for the words. `sequence` is stored last.
struct alignas(kLine) Line {
  Atomic<uint64_t> sequence;
  std::array<Atomic<uint64_t>, 7> words;
};
static_assert(sizeof(Line) == kLine && Atomic<uint64_t>::is_always_lock_free);

/// One rank in one group. A sync with sequence s is posted in lines[s % 2]: a rank overwrites
/// that line at s + 2, after s + 1, which every peer posts only when it has read line s.
struct alignas(2 * kLine) GroupRank {
  std::array<Line, 2> lines;
  alignas(kLine) Atomic<uint64_t> operation;  ///< The last one begun; 0: none.
  Atomic<uint64_t> completed;                 ///< The last one completed; 0: none.
  Atomic<uint64_t> members;                   ///< A bit per rank; 0: it never was one of them.
  Atomic<uint32_t> failed;                    ///< base::Code of why it gave up, or 0.
  Atomic<uint32_t> next_epoch;                ///< 1 + that of the survivors; beside `survivors`.
  // member + 1 in the upper 16 bits, operation below, of the first call that was cancelled. Any
  // member writes it to all.
  Atomic<uint64_t> cancelled;
  // The meeting of those who go on without the lost (survivors.h).
  Atomic<uint64_t> comes;      ///< 1 + the first group id that is free here; 0: not yet there.
  Atomic<uint64_t> survivors;  ///< In the first member's: a bit per rank. Any of them decides.
  // By sequence % 2, as the lines: how long the rank moved bytes before it posted that sync, in
  // units of 16 ns. Written only where calls are traced.
  std::array<Atomic<uint32_t>, 2> moved;
};
static_assert(sizeof(GroupRank) == 256 && kMaxRanks <= 64);

/// Where the ranks of a group sleep. Everybody writes.
struct alignas(2 * kLine) Waiters {
  Atomic<uint32_t> rings;  ///< The futex word.
  alignas(kLine) Atomic<uint32_t> sleepers;
};
static_assert(sizeof(Waiters) == 128);

inline constexpr size_t kStagingSets = 2;    ///< Alternating by operation.
inline constexpr size_t kStagingPlaces = 2;  ///< Slot, result.
inline constexpr size_t kStagingBytes = static_cast<size_t>(schedule::kSlotBytes);
inline constexpr size_t kStagingPerRank = kStagingSets * kStagingPlaces * kStagingBytes;

/// A channel carries the messages of one rank to another: a group of these two, the sender first.
/// Its id as a group is kMaxGroups + sender * ranks + receiver.
///
/// A sync with sequence s is posted in lines[s % kChannelLines], and the two of GroupRank are not
/// used: a sender posts ahead of its receiver. It reads every line that the receiver posts, up to r - 1
/// so far, and the receiver posts at most one sync that the sender has not. So a sender that posts up
/// to r + kChannelLines - 2 overwrites no line that is still to be read, at either end.
static_assert(kChannelLines >= 4 && (kChannelLines & (kChannelLines - 1)) == 0);
struct alignas(2 * kLine) ChannelRank {
  GroupRank rank;
  std::array<Line, kChannelLines> lines;
};
inline constexpr size_t kChannelBytes = sizeof(Waiters) + 2 * sizeof(ChannelRank);

/// Where each part starts.
struct Offsets {
  size_t ranks, sites, groups, group_bytes, channels, trace, staging, channel_staging, heap, total;
};

constexpr size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr Offsets offsets_of(size_t ranks, size_t trace_bytes, size_t heap_bytes) {
  Offsets at{};
  at.ranks = kAbortOffset + kMaxEpochs * sizeof(AbortWord);
  at.sites = at.ranks + ranks * sizeof(RankState);
  at.groups = round_up(at.sites + ranks * sizeof(SiteTable), 4096);
  at.group_bytes = sizeof(Waiters) + ranks * sizeof(GroupRank);
  at.channels = at.groups + kMaxGroups * at.group_bytes;
  at.trace = round_up(at.channels + ranks * ranks * kChannelBytes, 4096);
  at.staging = round_up(at.trace + ranks * trace_bytes, kHugePage);
  at.channel_staging = at.staging + kMaxGroups * ranks * kStagingPerRank;
  at.heap = at.channel_staging + ranks * ranks * 2 * kStagingPerRank;
  at.total = at.heap + ranks * heap_bytes;
  return at;
}

}  // namespace hanji::shm::internal
