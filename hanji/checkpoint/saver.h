#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <thread>

#include "hanji/checkpoint/save.h"
#include "hanji/trace/recorder.h"

namespace hanji::checkpoint {

/// How long saves kept the training waiting, and how long they took beside it.
struct SaveTimes {
  std::vector<double> blocked_seconds;  ///< By save: what save() took of its caller's time.
  std::vector<double> written_seconds;  ///< By save that ended well: the thread's work.
};

/// Saves beside the training: a step waits for a copy in memory, not for the disk.
///
/// The copy lies in one buffer that every save uses again, as large as the state.
/// Order   a save begins when the one before it has ended.
/// Thread  one caller; the writing is done by a thread that this object owns and joins.
class Saver {
 public:
  /// `recorder` may be null; it gets a span for the copy and one for the writing.
  explicit Saver(SaveOptions options, trace::Recorder* recorder = nullptr);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  /// Waits for the disk. Call wait() before to learn how it went.
  ~Saver() = default;

  /// Copies `state` and begins to save it; `state` may change as soon as this returns.
  ///
  /// Cost    waits for the save before, then for one copy of the state.
  /// Errors  the error of the save before, if nobody has been told yet (this save begins all the
  ///         same); kOutOfMemory when there is no room for the copy (it does not begin).
  Status save(const State& state, Manifest manifest);

  /// Waits until nothing is being written. Errors: that of the last save, told once.
  Status wait();

  /// Of all saves so far. Order: after wait().
  const SaveTimes& times() const { return times_; }

 private:
  Status stage(const State& state);
  void write(Manifest manifest);

  SaveOptions options_;
  trace::Recorder* recorder_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t buffer_bytes_ = 0;
  State staged_;   // Views of buffer_.
  Status status_;  // The writer's until it is joined.
  SaveTimes times_;
  std::jthread writer_;  // Last, so that it is joined before what it uses goes.
};

}  // namespace hanji::checkpoint
