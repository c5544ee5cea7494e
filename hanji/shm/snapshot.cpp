#include "hanji/shm/snapshot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>

#include "hanji/base/clock.h"
#include "hanji/shm/internal/flag_line.h"
#include "hanji/shm/internal/segment_layout.h"
#include "hanji/shm/internal/verdict.h"
#include "hanji/shm/message_wait.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm {

using namespace internal;

namespace {

/// The part of a segment before staging and heap, mapped for reading only.
class View {
 public:
  static Result<View> open(int fd) {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
      return base::corrupt("segment: it is not sealed, so its owner could cut it while it is read");
    }
    struct stat info {};
    if (::fstat(fd, &info) != 0) return base::from_errno("stat the segment", errno);
    const auto size = static_cast<size_t>(info.st_size);
    if (size < kAbortOffset + kMaxEpochs * sizeof(AbortWord)) {
      return base::corrupt(fmt::format("segment: {} bytes are no segment of hanji", size));
    }
    HANJI_ASSIGN_OR_RETURN(const View first,
                           map(fd, kAbortOffset + kMaxEpochs * sizeof(AbortWord)));
    HANJI_RETURN_IF_ERROR(check_header(first.header(), size));
    HANJI_ASSIGN_OR_RETURN(View whole, map(fd, first.offsets().staging));
    // The header as it was checked: its owner could change it between the two.
    whole.header_ = first.header();
    return whole;
  }
  View(View&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), header_(other.header_) {}
  View& operator=(View&&) = delete;
  ~View() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), bytes_);
  }

  const Header& header() const { return header_; }
  int ranks() const { return static_cast<int>(header_.ranks); }
  Offsets offsets() const {
    return offsets_of(header_.ranks, header_.trace_bytes, header_.heap_bytes);
  }
  /// Of the present epoch.
  const AbortWord& abort_word() const {
    const uint32_t epoch = at<EpochWord>(kEpochOffset).epoch.load(std::memory_order_acquire);
    return (&at<AbortWord>(kAbortOffset))[std::min(epoch, kMaxEpochs - 1)];
  }
  const OtherHosts& other_hosts() const { return at<OtherHosts>(kOtherHostsOffset); }
  const RankState& rank_state(int rank) const { return (&at<RankState>(offsets().ranks))[rank]; }
  const SiteTable& sites(int rank) const { return (&at<SiteTable>(offsets().sites))[rank]; }
  const GroupRank& member(int group, int rank) const {
    const size_t place = offsets().groups + group * offsets().group_bytes + sizeof(Waiters);
    return (&at<GroupRank>(place))[rank];
  }
  const ChannelRank& channel_end(int channel, int end) const {
    const size_t place = offsets().channels + channel * kChannelBytes + sizeof(Waiters);
    return (&at<ChannelRank>(place))[end];
  }
  /// A Recorder that only reads leaves the bytes alone.
  std::span<std::byte> trace(int rank) const {
    const size_t place = offsets().trace + rank * header_.trace_bytes;
    return {const_cast<std::byte*>(data_) + place, header_.trace_bytes - call_ring_bytes()};
  }
  std::span<std::byte> calls(int rank) const {
    return {trace(rank).data() + trace(rank).size(), call_ring_bytes()};
  }

 private:
  View(const std::byte* data, size_t bytes)
      : data_(data), bytes_(bytes), header_(*reinterpret_cast<const Header*>(data)) {}
  static Result<View> map(int fd, size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return base::from_errno("map the segment for reading", errno);
    return View(static_cast<const std::byte*>(data), bytes);
  }
  template <class T>
  const T& at(size_t offset) const {
    return *reinterpret_cast<const T*>(data_ + offset);
  }

  const std::byte* data_;
  size_t bytes_;
  Header header_;
};

/// Foreign bytes, made fit for a terminal.
std::string plain(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= ' ' && c <= '~' ? c : '?';
  return out;
}

template <size_t kBytes>
std::string text_of(const std::array<char, kBytes>& text) {
  return plain({text.data(), ::strnlen(text.data(), text.size())});
}

std::string site_of(const View& view, int rank, uint32_t id) {
  const SiteTable& table = view.sites(rank);
  const uint32_t count =
      std::min(table.count.load(std::memory_order_acquire), SiteTable::kEntries - 1);
  return id == 0 || id > count ? "an unknown call site" : text_of(table.text[id]);
}

char process_state(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t end = text.rfind(')');
  return pid <= 0 || end == text.npos || end + 2 >= text.size() ? 'X' : text[end + 2];
}

/// Only its low 16 bits travel in a line.
uint64_t whole_operation(uint64_t low, uint64_t begun) { return begun - ((begun - low) & 0xffff); }
bool is_newer(uint64_t low, uint64_t begun) { return ((begun - low) & 0x8000) != 0; }

/// The line of a rank's last sync up to the operation `begun`. A line is written again when the others
/// have been: if not all of these were posted meanwhile, the words belong together.
uint64_t read_line(std::span<const Line> lines, uint64_t begun, Words& words) {
  constexpr int kTries = 100;
  uint64_t found = 0;
  for (int i = 0; i < kTries; ++i) {
    found = 0;
    for (const Line& line : lines) {
      const uint64_t sequence = line.sequence.load(std::memory_order_acquire);
      Words read;
      for (size_t w = 0; w < read.size(); ++w) {
        read[w] = line.words[w].load(std::memory_order_acquire);
      }
      if (sequence <= found || is_newer(decode(read).operation, begun)) continue;
      found = sequence;
      words = read;
    }
    uint64_t last = 0;
    for (const Line& line : lines) {
      last = std::max(last, line.sequence.load(std::memory_order_acquire));
    }
    if (last < found + lines.size() - 1) break;
  }
  return found;
}

MemberSnapshot read_member(const View& view, int rank, const GroupRank& from,
                           std::span<const Line> lines, bool receives) {
  MemberSnapshot member;
  member.rank = rank;
  Words words;
  member.completed = from.completed.load(std::memory_order_acquire);
  member.begun = std::clamp(from.operation.load(std::memory_order_acquire), member.completed,
                            member.completed + 1);
  member.sequence = read_line(lines, member.begun, words);
  const uint32_t failed = from.failed.load(std::memory_order_acquire);
  if (failed != 0) {
    member.failed = static_cast<Code>(std::min(failed, static_cast<uint32_t>(Code::kInternal)));
  }
  if (member.sequence == 0) return member;
  const Descriptor posted = decode(words);
  member.call = PostedCall{whole_operation(posted.operation, member.begun),
                           std::string(receives ? "recv" : name_of(posted.routine)),
                           std::string(name_of(posted.dtype)),
                           posted.count,
                           describe_arguments(posted, receives),
                           site_of(view, rank, posted.call_site)};
  return member;
}

/// Groups without a common member may have one id: their members tell them apart.
void read_groups(const View& view, std::vector<GroupSnapshot>& groups) {
  for (int id = 0; id < kMaxGroups; ++id) {
    std::map<uint64_t, GroupSnapshot> by_members;
    for (int rank = 0; rank < view.ranks(); ++rank) {
      const uint64_t bits = view.member(id, rank).members.load(std::memory_order_acquire);
      if ((bits >> rank & 1) != 0) by_members[bits].id = id;
    }
    for (auto& [bits, group] : by_members) {
      for (int rank = 0; rank < view.ranks(); ++rank) {
        if ((bits >> rank & 1) == 0) continue;
        const GroupRank& member = view.member(id, rank);
        group.members.push_back(read_member(view, rank, member, member.lines, false));
      }
      groups.push_back(std::move(group));
    }
  }
}

void read_channels(const View& view, std::vector<GroupSnapshot>& groups) {
  const int ranks = view.ranks();
  for (int channel = 0; channel < ranks * ranks; ++channel) {
    const std::array<int, 2> ends = {channel / ranks, channel % ranks};
    if (ends[0] == ends[1]) continue;
    if (view.channel_end(channel, 0).rank.members.load() == 0 &&
        view.channel_end(channel, 1).rank.members.load() == 0) {
      continue;
    }
    GroupSnapshot group{.id = kMaxGroups + channel, .sender = ends[0], .members = {}};
    for (int end = 0; end < 2; ++end) {
      const ChannelRank& member = view.channel_end(channel, end);
      group.members.push_back(read_member(view, ends[end], member.rank, member.lines, end == 1));
    }
    groups.push_back(std::move(group));
  }
}

/// `waiting` of a rank belongs to one of its groups.
void read_waiting(const View& view, std::vector<GroupSnapshot>& groups) {
  for (GroupSnapshot& group : groups) {
    for (MemberSnapshot& member : group.members) {
      const RankState& state = view.rank_state(member.rank);
      const uint64_t waiting = state.waiting.load(std::memory_order_acquire);
      if (waiting == 0 || static_cast<int>(waiting >> 48) - 1 != group.id) continue;
      if ((waiting & (internal::kGaveUp * 2 - 1)) != member.begun || !member.inside()) continue;
      member.waiting_ns = state.waiting_since_ns.load(std::memory_order_relaxed);
    }
  }
}

void read_calls(const View& view, size_t max_calls, RankSnapshot& rank) {
  const auto recorder = trace::Recorder::attach(view.trace(rank.rank));
  if (recorder.ok()) {
    rank.coordinates = plain(recorder->coordinates());
    rank.step = recorder->step();
    rank.spans = plain(recorder->open_spans());
  }
  const auto ring = trace::Recorder::attach(view.calls(rank.rank));
  if (!ring.ok()) return;  // This rank never came.
  const std::vector<trace::Event> events = ring->events();
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (rank.calls.size() == max_calls) break;
    if (event->group < 0) continue;
    const auto dtype = static_cast<DType>(event->dtype);
    rank.calls.push_back({static_cast<uint64_t>(event->sequence), event->group,
                          plain(ring->name(event->name)), std::string(name_of(dtype)), event->bytes,
                          site_of(view, rank.rank, event->call_site), event->step, event->start_ns,
                          event->end_ns});
  }
  std::reverse(rank.calls.begin(), rank.calls.end());
}

RankPresence presence_of(uint32_t word) {
  switch (static_cast<Presence>(word)) {
    case Presence::kAbsent: return RankPresence::kNeverCame;
    case Presence::kHere: return RankPresence::kHere;
    case Presence::kLeft: return RankPresence::kLeft;
    case Presence::kDead: return RankPresence::kDied;
  }
  return RankPresence::kNeverCame;
}

/// Who the ranks of the segment are among all of the job. One that has not come yet is counted on from
/// those that have.
struct Numbers {
  std::vector<int> in_job;
  int world_size = 0;
};

Numbers read_numbers(const View& view) {
  Numbers numbers{.in_job = {}, .world_size = view.ranks()};
  std::vector<std::optional<int>> known;
  int first = 0;
  for (int rank = 0; rank < view.ranks(); ++rank) {
    const auto recorder = trace::Recorder::attach(view.trace(rank));
    known.push_back(recorder.ok() ? std::optional(recorder->rank()) : std::nullopt);
    if (!recorder.ok()) continue;
    first = recorder->rank() - rank;
    numbers.world_size = std::max(numbers.world_size, recorder->world_size());
  }
  for (int rank = 0; rank < view.ranks(); ++rank) {
    numbers.in_job.push_back(known[rank].value_or(first + rank));
  }
  return numbers;
}

MemberSnapshot member_of_messages(const View& view, int rank, const MessageWait& wait) {
  const MessageCall& call = wait.call;
  MemberSnapshot member;
  member.rank = rank;
  member.begun = call.operation;
  member.completed = wait.since_ns ? call.operation - 1 : call.operation;
  member.waiting_ns = wait.since_ns;
  const Descriptor posted{.routine = call.routine,
                          .dtype = call.dtype,
                          .op = call.op,
                          .root = call.root,
                          .tag = call.tag,
                          .count = call.count};
  member.call = PostedCall{call.operation,
                           std::string(call.receives ? "recv" : name_of(call.routine)),
                           std::string(name_of(call.dtype)),
                           call.count,
                           describe_arguments(posted, call.receives),
                           site_of(view, rank, call.call_site)};
  return member;
}

/// Of what each rank waited for last: its own group, and which of that group's ranks are here.
void read_message_groups(const View& view, const std::vector<int>& in_job,
                         std::vector<GroupSnapshot>& groups) {
  std::vector<std::optional<MessageWait>> waits;
  for (int rank = 0; rank < view.ranks(); ++rank) {
    waits.push_back(read_message_wait(view.rank_state(rank).message_wait));
  }
  std::vector<MessageGroup> known;
  for (const auto& wait : waits) {
    if (wait && !std::ranges::count(known, wait->group)) known.push_back(wait->group);
  }
  for (const MessageGroup& one : known) {
    GroupSnapshot group;
    group.id = kMaxGroups + view.ranks() * view.ranks() + static_cast<int>(groups.size());
    group.name = plain(one.name());
    const std::vector<int> ranks = one.ranks();
    for (const int number : ranks) {
      const auto here = std::ranges::find(in_job, number);
      if (here == in_job.end()) {
        group.elsewhere.push_back(number);
        continue;
      }
      const auto rank = static_cast<int>(here - in_job.begin());
      const auto& wait = waits[rank];
      MemberSnapshot unknown;
      unknown.rank = rank;
      const bool is_of_group = wait && wait->group == one;
      group.members.push_back(is_of_group ? member_of_messages(view, rank, *wait) : unknown);
    }
    const bool carries_messages = std::ranges::any_of(waits, [&](const auto& wait) {
      return wait && wait->group == one && wait->call.routine == schedule::Routine::kSend;
    });
    if (carries_messages && ranks.size() == 2) {
      group.sender = ranks[0];
      group.receiver = ranks[1];
    }
    groups.push_back(std::move(group));
  }
}

/// Lines of numbers and a name; what is none ends them.
std::vector<OtherHost> read_other_hosts(const View& view) {
  std::vector<OtherHost> hosts;
  const OtherHosts& from = view.other_hosts();
  if (from.state.load(std::memory_order_acquire) != OtherHosts::kSet) return hosts;
  const std::string text(from.text.data(), ::strnlen(from.text.data(), from.text.size()));
  std::istringstream lines(text);
  OtherHost host;
  while (lines >> host.first_rank >> host.num_ranks >> host.name) {
    host.name = plain(host.name);
    hosts.push_back(host);
  }
  return hosts;
}

/// From numbers in the segment to those in the job.
void renumber(const std::vector<int>& in_job, Snapshot& snapshot) {
  if (snapshot.end && snapshot.end->rank >= 0 && snapshot.end->rank < std::ssize(in_job)) {
    snapshot.end->rank = in_job[snapshot.end->rank];
  }
  for (RankSnapshot& rank : snapshot.ranks) rank.rank = in_job[rank.rank];
  for (GroupSnapshot& group : snapshot.groups) {
    for (MemberSnapshot& member : group.members) member.rank = in_job[member.rank];
    if (group.sender && group.name.empty()) group.sender = in_job[*group.sender];
  }
}

std::optional<EndOfJob> read_end(const View& view) {
  const AbortWord& word = view.abort_word();
  if (word.state.load(std::memory_order_acquire) != AbortWord::kSet) return {};
  const auto code = std::min(word.code, static_cast<uint32_t>(Code::kInternal));
  return EndOfJob{static_cast<Code>(code), word.rank, text_of(word.text)};
}

}  // namespace

const RankSnapshot& Snapshot::of_rank(int rank) const {
  return *std::ranges::find(ranks, rank, &RankSnapshot::rank);
}

Result<Snapshot> take_snapshot(const base::Fd& segment, size_t max_calls) {
  HANJI_ASSIGN_OR_RETURN(const View view, View::open(segment.get()));
  Snapshot snapshot;
  snapshot.build_id = text_of(view.header().build_id);
  snapshot.end = read_end(view);
  read_groups(view, snapshot.groups);
  read_channels(view, snapshot.groups);
  read_waiting(view, snapshot.groups);
  const Numbers numbers = read_numbers(view);
  read_message_groups(view, numbers.in_job, snapshot.groups);
  snapshot.other_hosts = read_other_hosts(view);
  if (snapshot.other_hosts.empty() && numbers.world_size > view.ranks()) {
    snapshot.other_hosts.push_back({.num_ranks = numbers.world_size - view.ranks()});
  }
  for (int number = 0; number < view.ranks(); ++number) {
    RankSnapshot rank;
    rank.rank = number;
    rank.pid = view.rank_state(number).pid.load();
    rank.presence = presence_of(view.rank_state(number).presence.load());
    rank.state = process_state(rank.pid);
    read_calls(view, max_calls, rank);
    snapshot.ranks.push_back(std::move(rank));
  }
  renumber(numbers.in_job, snapshot);
  snapshot.taken_ns = base::now_ns();
  return snapshot;
}

}  // namespace hanji::shm
