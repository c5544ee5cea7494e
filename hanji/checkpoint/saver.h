#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <thread>
#include <vector>

#include "hanji/checkpoint/save.h"
#include "hanji/trace/recorder.h"

namespace hanji::checkpoint {

/// How a save ended.
struct SaveOutcome {
  int64_t step = 0;
  Status status = {};
};

/// How long saves kept the training waiting, and how long they took beside it.
struct SaveTimes {
  std::vector<double> blocked_seconds;  ///< By save: what save() and wait_copied() took.
  std::vector<double> written_seconds;  ///< By save that ended well: the thread's work.
};

/// Saves beside the training: the next forward and backward only read what is saved, so a copy is
/// made beside them, and an update waits for that copy at most, not for the disk to have it.
///
/// Where the copy may be smaller than the state, an update waits until all but the last of it is
/// written.
/// Order   a save begins when the one before it has ended.
/// Thread  one caller; the writing is done by a thread that this object owns and joins.
class Saver {
 public:
  /// `recorder` may be null; it gets spans for the copy and for all of the save.
  explicit Saver(SaveOptions options, trace::Recorder* recorder = nullptr);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  /// Waits for the disk, but not for other parts. Call wait() before to learn how it went.
  ~Saver() = default;

  /// begin_checkpoint(), once the save before has ended. Errors: poll() and wait() return them too.
  Status begin(int64_t step, const SaveSize& size);

  /// Begins to save `state`, the part of `writer`; it may change once wait_copied() has returned. How it
  /// ends, poll() or wait() returns.
  ///
  /// Cost    waits for the save before.
  void save(State state, Manifest manifest, Writer writer = {});

  /// Waits until the last save has its copy, or has given up; at once if there was none.
  void wait_copied();

  /// Returns how saves have ended, each once and in their order, without waiting.
  std::vector<SaveOutcome> poll();
  /// Waits until nothing is being written. Result: as poll().
  std::vector<SaveOutcome> wait();

  /// Of all saves so far. Order: after wait().
  const SaveTimes& times() const { return times_; }
  /// Memory of the copies. Order: after wait_copied().
  int64_t copy_bytes() const { return buffer_.bytes; }

 private:
  Status run(const State& state, Manifest manifest, SaveSteps steps);
  void join();

  SaveOptions options_;
  trace::Recorder* recorder_;
  CopyBuffer buffer_;
  double begin_seconds_ = 0;  // Of begin(), part of the save that follows.
  SaveOutcome last_;          // The writer's until has_ended_.
  std::atomic<bool> has_ended_ = false;
  std::vector<SaveOutcome> ended_;  // Not yet returned.
  SaveTimes times_;
  std::future<void> copied_;
  std::jthread writer_;  // Last, so that it is joined before what it uses goes.
};

}  // namespace hanji::checkpoint
