#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/trace/event.h"
#include "hanji/trace/ranges.h"

namespace hanji::trace {
namespace internal {
struct Header;
struct NameEntry;
struct Record;
}  // namespace internal

/// A ring of the last events of one rank in memory that the caller owns and others may map.
///
/// Nothing is buffered in the process: an added event is readable by every process that maps the
/// memory, also after SIGKILL. A Recorder is a view, cheap to copy; the memory must outlive it.
/// Cost    add() writes one cache line; intern() of a known name is a hash and a comparison.
/// Thread  add(), intern() and set_step() from any number of threads, readers meanwhile too. A
///         reader skips a record that is being written.
class Recorder {
 public:
  static constexpr uint32_t kDefaultNames = 1024;
  static constexpr size_t kMaxNameBytes = 120;  ///< Longer names are cut.

  /// Bytes of memory for so many events and names.
  static size_t bytes_for(uint32_t num_events, uint32_t num_names = kDefaultNames);

  /// Begins an empty recording in `memory`, with as many events as fit.
  /// Errors  throws Error (kInvalidArgument) if the memory is smaller than bytes_for(1, num_names)
  ///         or not aligned to 64 bytes.
  static Recorder format(std::span<std::byte> memory, int rank, int world_size,
                         uint32_t num_names = kDefaultNames);

  /// Reads what another process recorded. The bytes may be anything: every size is checked
  /// against `memory` now, every index and length when it is used.
  /// Errors  kCorrupt.
  static Result<Recorder> attach(std::span<std::byte> memory);

  /// The id of a name, the same for equal names; 0 when the table is full.
  NameId intern(std::string_view name);
  /// Errors  an event that meets a slot still being written is dropped and counted.
  void add(const Event& event);

  void set_step(int64_t step);
  int64_t step() const;

  /// The coordinates of the rank on a mesh, "dp=1,tp=0", for errors and traces. Empty: none are known.
  void set_coordinates(std::string_view coordinates);
  std::string coordinates() const;

  /// Notes which span a lane is in, 0 for none, and returns the one before; Span does so.
  NameId enter(Lane lane, NameId name);
  /// The innermost Span of each lane that is in one, the main lane first: "forward, checkpoint write".
  /// Of a dead rank those it died in.
  std::string open_spans() const;

  /// What is in the ring, in the order of add().
  std::vector<Event> events() const;
  void for_each(const std::function<void(const Event&)>& visit) const;
  /// The same of what was added since a call that returned `ticket`; 0 begins with the oldest. The ticket to go on
  /// with. Cost: what was added since.
  uint64_t for_each_since(uint64_t ticket, const std::function<void(const Event&)>& visit) const;
  /// "(other)" for 0, "(unknown)" for an id that was never given.
  std::string name(NameId id) const;
  /// Events that were added but are no longer, or never came, in the ring.
  int64_t num_dropped() const;
  uint32_t capacity() const { return num_events_; }

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  /// Add to an event's nanoseconds to get nanoseconds since 1970.
  int64_t wall_offset_ns() const { return wall_offset_ns_; }

 private:
  Recorder(std::byte* memory, uint32_t num_events, uint32_t num_names);
  internal::NameEntry& entry(uint64_t index) const;
  internal::Record& record(uint64_t ticket) const;

  internal::Header* header_;
  std::byte* names_;
  std::byte* records_;
  uint32_t num_events_;
  uint32_t num_names_;
  int rank_ = 0;
  int world_size_ = 1;
  int64_t wall_offset_ns_ = 0;
};

/// Records the time from its birth to its death, and shows that its lane is in it meanwhile; also a Range whose payload
/// is the step. Without a recorder it does nothing.
/// Order   spans of one lane nest.
class Span {
 public:
  Span(Recorder* recorder, std::string_view name, Category category, Lane lane = Lane::kMain);
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span();

  void set_bytes(int64_t bytes) { event_.bytes = bytes; }

 private:
  Recorder* recorder_;
  Event event_;
  NameId outer_ = 0;  ///< The span of this lane before.
  std::optional<Range> range_;
};

}  // namespace hanji::trace
