#include "hanji/trace/recorder.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <thread>

#include "hanji/base/checksum.h"
#include "hanji/base/clock.h"
#include "hanji/trace/internal/ring_layout.h"

namespace hanji::trace {
namespace {

using internal::Header;
using internal::NameEntry;
using internal::Record;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

constexpr size_t kAlignment = 64;
constexpr int kMaxSpins = 1000;
constexpr int kMaxWorldSize = 1 << 20;  // readers make lists of ranks

uint64_t busy_stamp(uint64_t ticket) { return 2 * (ticket + 1) + 1; }
uint64_t whole_stamp(uint64_t ticket) { return 2 * (ticket + 1); }
bool is_busy(uint64_t stamp) { return (stamp & 1) != 0; }

bool is_aligned(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kAlignment == 0;
}

/// Cuts at a character's start, so that what is left is still UTF-8.
std::string_view cut(std::string_view name) {
  if (name.size() <= Recorder::kMaxNameBytes) return name;
  size_t size = Recorder::kMaxNameBytes;
  while (size > 0 && (static_cast<uint8_t>(name[size]) & 0xC0) == 0x80) --size;
  return name.substr(0, size);
}

/// The lowest bits of a value; larger ones become the largest, so that no field spills into the next.
uint64_t field(int64_t value, int bits) {
  const auto limit = (int64_t{1} << bits) - 1;
  return static_cast<uint64_t>(std::clamp<int64_t>(value, 0, limit));
}

int64_t part(uint64_t word, int from, int bits) {
  return static_cast<int64_t>(word >> from & ((uint64_t{1} << bits) - 1));
}

/// Release and acquire on every word keep the words between the two stamps (fences would do, but
/// ThreadSanitizer does not know them). On x86 they are plain moves.
void store(Record& record, const Event& event) {
  const auto put = [](std::atomic<uint64_t>& word, uint64_t value) {
    word.store(value, memory_order_release);
  };
  put(record.start_ns, static_cast<uint64_t>(event.start_ns));
  put(record.duration,
      field(event.end_ns - event.start_ns, 48) | static_cast<uint64_t>(event.lane) << 48 |
          static_cast<uint64_t>(event.category) << 52 | uint64_t{event.dtype} << 56);
  put(record.step,
      field(event.step, 40) | uint64_t{event.routine} << 40 | field(event.call_site, 16) << 48);
  put(record.bytes, field(event.bytes, 48) | field(int64_t{event.group} + 1, 16) << 48);
  put(record.sequence, field(event.sequence + 1, 48) | uint64_t{event.op} << 48);
  put(record.name, static_cast<uint32_t>(event.group_size) | uint64_t{event.name} << 32);
  put(record.counts, event.counts);
}

/// Nothing if a kind is none of ours: the bytes are not a record then.
std::optional<Event> load(const Record& record) {
  const auto get = [](const std::atomic<uint64_t>& word) {
    return word.load(memory_order_acquire);
  };
  Event event;
  event.start_ns = static_cast<int64_t>(get(record.start_ns));
  const uint64_t duration = get(record.duration);
  const int64_t lane = part(duration, 48, 4), category = part(duration, 52, 4);
  if (lane >= kNumLanes || category >= kNumCategories) return {};
  if (event.start_ns < 0 || event.start_ns > INT64_MAX - part(duration, 0, 48)) return {};
  event.end_ns = event.start_ns + part(duration, 0, 48);
  event.lane = static_cast<Lane>(lane);
  event.category = static_cast<Category>(category);
  event.dtype = static_cast<uint8_t>(duration >> 56);
  const uint64_t step = get(record.step);
  event.step = part(step, 0, 40);
  event.routine = static_cast<uint8_t>(part(step, 40, 8));
  event.call_site = static_cast<uint32_t>(step >> 48);
  const uint64_t bytes = get(record.bytes);
  event.bytes = part(bytes, 0, 48);
  event.group = static_cast<int32_t>(bytes >> 48) - 1;
  const uint64_t sequence = get(record.sequence);
  event.sequence = part(sequence, 0, 48) - 1;
  event.op = static_cast<uint8_t>(part(sequence, 48, 8));
  const uint64_t name = get(record.name);
  event.group_size = static_cast<int32_t>(name & 0xFFFFFFFF);
  event.name = static_cast<NameId>(name >> 32);
  event.counts = static_cast<uint32_t>(get(record.counts));
  return event;
}

std::optional<Event> load_whole(const Record& record, uint64_t ticket) {
  if (record.stamp.load(memory_order_acquire) != whole_stamp(ticket)) return {};
  const std::optional<Event> event = load(record);
  if (record.stamp.load(memory_order_relaxed) != whole_stamp(ticket)) return {};
  return event;
}

}  // namespace

size_t Recorder::bytes_for(uint32_t num_events, uint32_t num_names) {
  return sizeof(Header) + size_t{num_names} * sizeof(NameEntry) +
         size_t{num_events} * sizeof(Record);
}

Recorder::Recorder(std::byte* memory, uint32_t num_events, uint32_t num_names)
    : header_(std::launder(reinterpret_cast<Header*>(memory))),
      names_(memory + sizeof(Header)),
      records_(names_ + size_t{num_names} * sizeof(NameEntry)),
      num_events_(num_events),
      num_names_(num_names),
      rank_(header_->rank),
      world_size_(header_->world_size),
      wall_offset_ns_(header_->wall_offset_ns) {}

NameEntry& Recorder::entry(uint64_t index) const {
  return reinterpret_cast<NameEntry*>(names_)[index % num_names_];
}

Record& Recorder::record(uint64_t ticket) const {
  // A division in every call shows; most rings have a power of two.
  const uint64_t mask = num_events_ - 1;
  const uint64_t index = (num_events_ & mask) == 0 ? ticket & mask : ticket % num_events_;
  return reinterpret_cast<Record*>(records_)[index];
}

Recorder Recorder::format(std::span<std::byte> memory, int rank, int world_size,
                          uint32_t num_names) {
  if (memory.size() < bytes_for(1, num_names) || num_names == 0 || !is_aligned(memory.data())) {
    throw Error(base::invalid_argument(
        "trace: " + std::to_string(memory.size()) + " bytes of memory; give at least " +
        std::to_string(bytes_for(1, num_names)) + ", aligned to 64, and at least one name"));
  }
  const size_t room = (memory.size() - bytes_for(0, num_names)) / sizeof(Record);
  std::memset(memory.data(), 0, memory.size());
  Header* header = new (memory.data()) Header{};
  header->version = internal::kLayoutVersion;
  header->num_events = static_cast<uint32_t>(std::min<size_t>(room, UINT32_MAX));
  header->num_names = num_names;
  header->rank = rank;
  header->world_size = world_size;
  header->wall_offset_ns = base::wall_ns() - base::now_ns();
  header->magic.store(internal::kMagic, memory_order_release);
  return Recorder(memory.data(), header->num_events, num_names);
}

Result<Recorder> Recorder::attach(std::span<std::byte> memory) {
  if (memory.size() < sizeof(Header) || !is_aligned(memory.data())) {
    return base::corrupt("trace: " + std::to_string(memory.size()) +
                         " bytes hold no header of 128, aligned to 64");
  }
  const auto* header = std::launder(reinterpret_cast<const Header*>(memory.data()));
  if (header->magic.load(memory_order_acquire) != internal::kMagic) {
    return base::corrupt("trace: no recording here (wrong magic)");
  }
  if (header->version != internal::kLayoutVersion) {
    return base::corrupt("trace: layout version " + std::to_string(header->version) +
                         ", this build reads " + std::to_string(internal::kLayoutVersion));
  }
  const uint32_t num_events = header->num_events;  // once: its owner may still write
  const uint32_t num_names = header->num_names;
  if (num_events == 0 || num_names == 0 || bytes_for(num_events, num_names) > memory.size()) {
    return base::corrupt("trace: " + std::to_string(num_events) + " events and " +
                         std::to_string(num_names) + " names do not fit in " +
                         std::to_string(memory.size()) + " bytes");
  }
  Recorder recorder(memory.data(), num_events, num_names);
  const bool fits = recorder.rank_ < recorder.world_size_ && recorder.world_size_ <= kMaxWorldSize;
  if (recorder.rank_ >= 0 && fits) return recorder;
  return base::corrupt("trace: rank " + std::to_string(recorder.rank_) + " of " +
                       std::to_string(recorder.world_size_));
}

NameId Recorder::intern(std::string_view name) {
  name = cut(name);
  const uint64_t hash = base::xxh3(std::as_bytes(std::span(name.data(), name.size())));
  for (uint64_t probe = 0; probe < num_names_; ++probe) {
    const uint64_t index = (hash % num_names_ + probe) % num_names_;
    NameEntry& slot = entry(index);
    uint32_t state = slot.state.load(memory_order_acquire);
    if (state == NameEntry::kEmpty &&
        slot.state.compare_exchange_strong(state, NameEntry::kBusy, memory_order_acquire)) {
      std::memcpy(slot.text, name.data(), name.size());
      slot.length = static_cast<uint32_t>(name.size());
      slot.state.store(NameEntry::kReady, memory_order_release);
      return static_cast<NameId>(index + 1);
    }
    // Another thread writes a name here. It is a copy of 120 bytes; should its thread be dead or
    // descheduled, the next entry serves, and the name may have two ids.
    for (int spin = 0; state != NameEntry::kReady && spin < kMaxSpins; ++spin) {
      std::this_thread::yield();
      state = slot.state.load(memory_order_acquire);
    }
    if (state != NameEntry::kReady) continue;
    const size_t length = std::min<size_t>(slot.length, kMaxNameBytes);
    if (std::string_view(slot.text, length) == name) return static_cast<NameId>(index + 1);
  }
  return 0;
}

/// A ticket is taken, then its slot: from a whole, older record only, so that two writers a lap
/// apart never mix their words.
void Recorder::add(const Event& event) {
  const uint64_t ticket = header_->next.fetch_add(1, memory_order_relaxed);
  Record& slot = record(ticket);
  uint64_t stamp = slot.stamp.load(memory_order_relaxed);
  const bool is_free = !is_busy(stamp) && stamp < whole_stamp(ticket);
  if (!is_free ||
      !slot.stamp.compare_exchange_strong(stamp, busy_stamp(ticket), memory_order_acquire)) {
    header_->skipped.fetch_add(1, memory_order_relaxed);
    return;
  }
  Event stamped = event;
  if (event.step == kCurrentStep) stamped.step = step();
  store(slot, stamped);
  slot.stamp.store(whole_stamp(ticket), memory_order_release);
  // The next slot was written a lap ago and is in no cache: its exchange would wait for memory.
  __builtin_prefetch(&record(ticket + 1), 1);
}

void Recorder::set_step(int64_t step) { header_->step.store(step, memory_order_relaxed); }
int64_t Recorder::step() const { return header_->step.load(memory_order_relaxed); }

void Recorder::set_coordinates(std::string_view coordinates) {
  header_->coordinates.store(coordinates.empty() ? 0 : intern(coordinates), memory_order_relaxed);
}

std::string Recorder::coordinates() const {
  const NameId id = header_->coordinates.load(memory_order_relaxed);
  return id == 0 ? "" : name(id);
}

NameId Recorder::enter(Lane lane, NameId name) {
  return header_->open_spans[static_cast<size_t>(lane)].exchange(name, memory_order_relaxed);
}

std::string Recorder::open_spans() const {
  std::string text;
  for (const auto& open : header_->open_spans) {
    const NameId id = open.load(memory_order_relaxed);
    if (id != 0) text += (text.empty() ? "" : ", ") + name(id);
  }
  return text;
}

void Recorder::for_each(const std::function<void(const Event&)>& visit) const {
  for_each_since(0, visit);
}

uint64_t Recorder::for_each_since(uint64_t ticket,
                                  const std::function<void(const Event&)>& visit) const {
  const uint64_t next = header_->next.load(memory_order_acquire);
  const uint64_t oldest = next - std::min<uint64_t>(next, num_events_);
  for (ticket = std::max(ticket, oldest); ticket < next; ++ticket) {
    if (const auto event = load_whole(record(ticket), ticket)) visit(*event);
  }
  return next;
}

std::vector<Event> Recorder::events() const {
  std::vector<Event> events;
  for_each([&](const Event& event) { events.push_back(event); });
  return events;
}

std::string Recorder::name(NameId id) const {
  if (id == 0) return "(other)";
  if (id > num_names_) return "(unknown)";
  const NameEntry& slot = entry(id - 1);
  if (slot.state.load(memory_order_acquire) != NameEntry::kReady) return "(unknown)";
  return std::string(slot.text, std::min<size_t>(slot.length, kMaxNameBytes));
}

int64_t Recorder::num_dropped() const {
  const uint64_t next = header_->next.load(memory_order_acquire);
  const uint64_t overwritten = next > num_events_ ? next - num_events_ : 0;
  const uint64_t skipped = header_->skipped.load(memory_order_relaxed);
  return static_cast<int64_t>(std::min<uint64_t>(overwritten, INT64_MAX / 2) +
                              std::min<uint64_t>(skipped, INT64_MAX / 2));
}

Span::Span(Recorder* recorder, std::string_view name, Category category, Lane lane)
    : recorder_(recorder) {
  if (recorder_ == nullptr) return;
  event_.name = recorder_->intern(name);
  event_.category = category;
  event_.lane = lane;
  event_.step = recorder_->step();
  if (has_range_tool()) range_.emplace(name, category, event_.step);
  outer_ = recorder_->enter(lane, event_.name);
  event_.start_ns = base::now_ns();
}

Span::~Span() {
  if (recorder_ == nullptr) return;
  event_.end_ns = base::now_ns();
  recorder_->enter(event_.lane, outer_);
  recorder_->add(event_);
}

}  // namespace hanji::trace
