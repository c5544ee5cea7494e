#include "hanji/shm/segment.h"

#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "hanji/base/checksum.h"
#include "hanji/base/clock.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/internal/futex.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/shm/snapshot.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm {

using namespace internal;

namespace {

Header& header_of(std::byte* data) { return *reinterpret_cast<Header*>(data); }

uint64_t checksum_of(const Header& header) {
  return base::xxh3({reinterpret_cast<const std::byte*>(&header), offsetof(Header, checksum)});
}

Status store_text(std::string_view what, std::string_view text, std::array<char, 96>& to) {
  if (text.size() >= to.size()) {
    return base::invalid_argument("segment: " + std::string(what) + " has " +
                                  std::to_string(text.size()) + " characters; at most 95 fit");
  }
  std::memcpy(to.data(), text.data(), text.size());
  return {};
}

Status check_options(const SegmentOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    return base::invalid_argument("segment: " + std::to_string(options.ranks) + " ranks; 1 to " +
                                  std::to_string(kMaxRanks) + " can share a host");
  }
  if (options.heap_bytes_per_rank > size_t{1} << 44) {
    return base::invalid_argument("segment: " + std::to_string(options.heap_bytes_per_rank) +
                                  " bytes of heap per rank; at most 16 TiB of addresses");
  }
  return {};
}

Status check_same(std::string_view what, const std::array<char, 96>& theirs,
                  std::string_view mine) {
  const std::string_view have(theirs.data(), strnlen(theirs.data(), theirs.size()));
  if (have == mine) return {};
  return base::mismatch("segment: " + std::string(what) + " is '" + std::string(have) +
                        "' there and '" + std::string(mine) + "' here; start all ranks alike");
}

}  // namespace

size_t internal::call_ring_bytes() {
  return round_up(trace::Recorder::bytes_for(kFlightCalls, kCallNames), 4096);
}

Status internal::check_header(const Header& header, size_t bytes) {
  if (bytes < kAbortOffset + kMaxEpochs * sizeof(AbortWord) || header.magic != kMagic) {
    return base::corrupt(
        "segment: not a hanji segment; pass the descriptor that the launcher made");
  }
  if (header.version != kVersion) {
    return base::corrupt("segment: layout version " + std::to_string(header.version) +
                         ", this is " + std::to_string(kVersion) + "; run one build on all ranks");
  }
  if (header.checksum != checksum_of(header)) {
    return base::corrupt("segment: its header was damaged (checksum differs); start the job again");
  }
  const bool plausible =
      header.ranks >= 1 && header.ranks <= kMaxRanks && header.total_bytes <= bytes &&
      header.trace_bytes >= call_ring_bytes() && header.trace_bytes <= bytes &&
      header.heap_bytes <= bytes &&
      offsets_of(header.ranks, header.trace_bytes, header.heap_bytes).total == header.total_bytes;
  if (!plausible) return base::corrupt("segment: its sizes contradict each other");
  return {};
}

Result<std::shared_ptr<Segment>> Segment::create(const SegmentOptions& options) {
  HANJI_RETURN_IF_ERROR(check_options(options));
  const auto ranks = static_cast<size_t>(options.ranks);
  Header header{};
  header.magic = kMagic;
  header.version = kVersion;
  header.ranks = static_cast<uint32_t>(ranks);
  header.trace_bytes =
      round_up(trace::Recorder::bytes_for(options.trace_events), 4096) + call_ring_bytes();
  header.heap_bytes = round_up(options.heap_bytes_per_rank, kHugePage);
  HANJI_RETURN_IF_ERROR(store_text("build id", options.build_id, header.build_id));
  HANJI_RETURN_IF_ERROR(store_text("plan hash", options.plan_hash, header.plan_hash));
  const Offsets at = offsets_of(ranks, header.trace_bytes, header.heap_bytes);
  header.total_bytes = at.total;
  header.checksum = checksum_of(header);
  HANJI_ASSIGN_OR_RETURN(auto memory, base::SharedMemory::create("hanji", at.total));
  HANJI_RETURN_IF_ERROR(memory.grow(0, at.trace + ranks * header.trace_bytes));
  header_of(memory.data()) = header;
  return finish(std::move(memory));
}

Result<std::shared_ptr<Segment>> Segment::attach(base::Fd fd, std::string_view build_id,
                                                 std::string_view plan_hash) {
  HANJI_ASSIGN_OR_RETURN(auto memory, base::SharedMemory::attach(std::move(fd)));
  const Header& header = header_of(memory.data());
  HANJI_RETURN_IF_ERROR(check_header(header, memory.size()));
  HANJI_RETURN_IF_ERROR(check_same("build", header.build_id, build_id));
  HANJI_RETURN_IF_ERROR(check_same("plan", header.plan_hash, plan_hash));
  return finish(std::move(memory));
}

Result<std::shared_ptr<Segment>> Segment::finish(base::SharedMemory memory) {
  std::shared_ptr<Segment> segment(new Segment(std::move(memory)));
  segment->call_sites_ = std::make_unique<CallSites>(*segment);
  return segment;
}

Segment::Segment(base::SharedMemory memory) : memory_(std::move(memory)) {
  const Header& header = header_of(memory_.data());
  ranks_ = static_cast<int>(header.ranks);
  trace_bytes_ = header.trace_bytes;
  heap_bytes_ = header.heap_bytes;
  offsets_ = std::make_unique<const Offsets>(offsets_of(ranks_, trace_bytes_, heap_bytes_));
}

Segment::~Segment() = default;

std::span<std::byte> Segment::trace_memory(int rank) const {
  return {data() + offsets().trace + rank * trace_bytes_, trace_bytes_ - call_ring_bytes()};
}

std::span<std::byte> Segment::call_memory(int rank) const {
  const auto trace = trace_memory(rank);
  return {trace.data() + trace.size(), call_ring_bytes()};
}

size_t Segment::heap_offset(int rank) const { return offsets().heap + rank * heap_bytes_; }

Segment::Place Segment::place_of(int group, int rank) const {
  const Offsets& at = offsets();
  if (group < kMaxGroups) {
    return {at.groups + static_cast<size_t>(group) * at.group_bytes, static_cast<size_t>(rank),
            at.staging + static_cast<size_t>(group) * ranks_ * kStagingPerRank};
  }
  const auto channel = static_cast<size_t>(group - kMaxGroups);
  const bool sends = rank == static_cast<int>(channel) / ranks_;
  return {at.channels + channel * kChannelBytes, sends ? size_t{0} : size_t{1},
          at.channel_staging + channel * 2 * kStagingPerRank};
}

size_t Segment::staging_offset(int group, int rank) const {
  const Place place = place_of(group, rank);
  return place.staging + place.member * kStagingPerRank;
}

int Segment::channel_id(int sender, int receiver) const {
  return kMaxGroups + sender * ranks_ + receiver;
}

RankState& Segment::rank_state(int rank) const {
  return reinterpret_cast<RankState*>(data() + offsets().ranks)[rank];
}

SiteTable& Segment::site_table(int rank) const {
  return reinterpret_cast<SiteTable*>(data() + offsets().sites)[rank];
}

Waiters& Segment::waiters(int group) const {
  return *reinterpret_cast<Waiters*>(data() + place_of(group, 0).waiters);
}

GroupRank& Segment::group_rank(int group, int rank) const {
  const Place place = place_of(group, rank);
  const size_t bytes = group < kMaxGroups ? sizeof(GroupRank) : sizeof(ChannelRank);
  std::byte* first = data() + place.waiters + sizeof(Waiters);
  return *reinterpret_cast<GroupRank*>(first + place.member * bytes);
}

std::span<Line> Segment::lines(int group, int rank) const {
  GroupRank& own = group_rank(group, rank);
  if (group < kMaxGroups) return own.lines;
  return reinterpret_cast<ChannelRank&>(own).lines;
}

AbortWord& Segment::abort_word(uint32_t epoch) const {
  return reinterpret_cast<AbortWord*>(data() + kAbortOffset)[epoch];
}

EpochWord& Segment::epoch_word() const {
  return *reinterpret_cast<EpochWord*>(data() + kEpochOffset);
}

uint32_t Segment::epoch() const { return epoch_word().epoch.load(std::memory_order_acquire); }

uint64_t Segment::lost() const { return epoch_word().lost.load(); }

// Who reports a loss reads the epoch first: in the new one, the lost are known.
Status Segment::begin_epoch(uint32_t ended, uint64_t lost) {
  if (ended + 1 >= kMaxEpochs) {
    return base::unsupported("segment: it has ended " + std::to_string(kMaxEpochs) +
                             " times; start the job again");
  }
  epoch_word().lost.fetch_or(lost);
  epoch_word().epoch.compare_exchange_strong(ended, ended + 1);
  return {};
}

Result<const std::byte*> Segment::read_only() const {
  const std::lock_guard lock(read_only_mutex_);
  if (!read_only_) {
    HANJI_ASSIGN_OR_RETURN(auto mapping, memory_.map_read_only());
    read_only_.emplace(std::move(mapping));
  }
  return read_only_->data();
}

void Segment::join(int rank) {
  RankState& state = rank_state(rank);
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::array<uint64_t, 16> words{};
  static_assert(sizeof words <= sizeof set);
  std::memcpy(words.data(), &set, sizeof words);
  for (size_t i = 0; i < words.size(); ++i) state.processors[i].store(words[i]);
  if (!trace::Recorder::attach(call_memory(rank)).ok()) {
    trace::Recorder::format(call_memory(rank), rank, ranks_, kCallNames);
  }
  state.pid.store(::getpid());
  state.heartbeat_ns.store(base::now_ns());
  state.presence.store(static_cast<uint32_t>(Presence::kHere));
}

void Segment::leave(int rank) {
  rank_state(rank).presence.store(static_cast<uint32_t>(Presence::kLeft));
}

void Segment::describe_other_hosts(std::string_view lines) {
  auto& hosts = *reinterpret_cast<OtherHosts*>(data() + kOtherHostsOffset);
  uint32_t free = OtherHosts::kFree;
  if (!hosts.state.compare_exchange_strong(free, OtherHosts::kWritten)) return;
  std::memcpy(hosts.text.data(), lines.data(), std::min(lines.size(), hosts.text.size() - 1));
  hosts.state.store(OtherHosts::kSet, std::memory_order_release);
}

bool Segment::is_expected(int rank) const {
  const auto presence = static_cast<Presence>(rank_state(rank).presence.load());
  return presence == Presence::kHere || presence == Presence::kDead;
}

int Segment::pid(int rank) const { return rank_state(rank).pid.load(); }

int Segment::num_processors() const {
  int count = 0;
  for (size_t i = 0; i < std::tuple_size_v<decltype(RankState::processors)>; ++i) {
    uint64_t word = 0;
    for (int rank = 0; rank < ranks_; ++rank) word |= rank_state(rank).processors[i].load();
    count += __builtin_popcountll(word);
  }
  return count;
}

bool Segment::abort(int rank, Code code, std::string_view text) {
  AbortWord& word = abort_word(epoch());
  if (rank >= 0 && (lost() >> rank & 1) != 0) return false;
  uint32_t none = AbortWord::kNone;
  if (!word.state.compare_exchange_strong(none, AbortWord::kClaimed)) return false;
  note_write(&word.code, sizeof word - offsetof(AbortWord, code));
  word.code = static_cast<uint32_t>(code);
  word.rank = rank;
  const size_t length = std::min(text.size(), word.text.size() - 1);
  std::memcpy(word.text.data(), text.data(), length);
  word.text[length] = '\0';
  word.state.store(AbortWord::kSet);
  for (int group = 0; group < kMaxGroups + ranks_ * ranks_; ++group) {
    waiters(group).rings.fetch_add(1);
    if (waiters(group).sleepers.load() != 0) futex_wake_all(waiters(group).rings);
  }
  return true;
}

bool Segment::aborted(uint32_t epoch) const {
  return abort_word(epoch).state.load(std::memory_order_acquire) == AbortWord::kSet;
}

int Segment::abort_rank() const { return aborted() ? abort_word(epoch()).rank : -1; }

Status Segment::abort_status(uint32_t epoch) const {
  if (!aborted(epoch)) return {};
  const AbortWord& word = abort_word(epoch);
  note_read(&word.code, sizeof word - offsetof(AbortWord, code));
  const std::string_view text(word.text.data(), strnlen(word.text.data(), word.text.size()));
  return Status(static_cast<Code>(word.code), std::string(text));
}

}  // namespace hanji::shm
