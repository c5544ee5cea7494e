#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "hanji/checkpoint/save.h"
#include "hanji/trace/recorder.h"

namespace hanji::checkpoint {

/// How long saves kept the training waiting, and how long they took beside it.
struct SaveTimes {
  std::vector<double> blocked_seconds;  ///< By save: what save() and wait_copied() took.
  std::vector<double> written_seconds;  ///< By save that ended well: the thread's work.
};

/// Saves beside the training: the next forward and backward only read what is saved, so a copy is
/// made beside them, and an update waits for that copy at most, not for the disk.
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

  /// Begins to save `state`, which may change once wait_copied() has returned. `owner` is kept
  /// until then: what the bytes of `state` live in.
  ///
  /// Cost    waits for the save before.
  /// Errors  the error of the save before, if nobody has been told yet (this save begins all the
  ///         same). Its own, as kOutOfMemory when there is no room for the copy, are told later.
  Status save(State state, Manifest manifest, std::shared_ptr<const void> owner = nullptr);

  /// Waits until the last save has its copy, or has given up; at once if there was none.
  void wait_copied();

  /// Waits until nothing is being written. Errors: that of the last save, told once.
  Status wait();

  /// Of all saves so far. Order: after wait().
  const SaveTimes& times() const { return times_; }
  /// Size of the buffer that the last save was copied to. Order: after wait_copied().
  int64_t copy_bytes() const { return static_cast<int64_t>(buffer_bytes_); }

 private:
  Status stage(const State& state);
  Status write(Manifest manifest);

  SaveOptions options_;
  trace::Recorder* recorder_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t buffer_bytes_ = 0;
  State staged_;   // Views of buffer_.
  Status status_;  // The writer's until it is joined.
  SaveTimes times_;
  std::future<void> copied_;
  std::jthread writer_;  // Last, so that it is joined before what it uses goes.
};

}  // namespace hanji::checkpoint
