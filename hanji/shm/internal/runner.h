#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "hanji/shm/engine.h"
#include "hanji/shm/internal/group_lines.h"
#include "hanji/shm/internal/operation.h"
#include "hanji/shm/internal/transfer.h"
#include "hanji/shm/internal/wait_clock.h"

namespace hanji::shm::internal {

/// Walks the step list of one operation at a time: the protocol of the flag lines.
///
/// Everything that one operation's list means by slots, results, inputs and outputs is resolved
/// here to addresses; a slot of at most 32 bytes lies in the flag line itself.
class Runner {
 public:
  Runner(GroupLines& lines, Stats& stats, trace::Recorder* recorder = nullptr);

  /// Works on `operation` for as long as nobody is waited for and `budget` (bytes of memory
  /// traffic, counted down) lasts. True once it is complete.
  Result<bool> run(Operation& operation, int64_t& budget);

  /// Posts all syncs of an operation behind the running one, if that is all this rank does in it and
  /// its lines have room: the others then need nothing more from this rank.
  /// Order   the syncs of all operations before it have been posted.
  /// Result  false if nothing was posted.
  bool post_ahead(Operation& operation);

  WaitClock& clock() { return clock_; }
  /// The sync that is waited for, or was passed last.
  uint64_t sequence() const { return sequence_; }
  /// Counts whatever was achieved: steps, pieces of steps, syncs.
  uint64_t progress() const { return progress_; }
  /// The number of the last operation of this group, before this engine was made.
  uint64_t first_operation() const { return first_operation_; }

 private:
  void begin(Operation& operation);
  void post(Operation& operation);
  void post_next(const Words& words);
  Status open(Operation& operation);
  std::byte* at(int64_t offset) const;
  Status resolve_peers(Operation& operation);
  bool run_step(Operation& operation, int64_t& budget);

  GroupLines& lines_;
  Stats& stats_;
  WaitClock clock_;
  uint64_t sequence_ = 0;
  uint64_t last_post_ = 0;  ///< At least `sequence_`.
  uint64_t progress_ = 0;
  uint64_t first_operation_ = 0;
  bool rung_ = true;
  Buffers buffers_;
  Transfer transfer_;
  std::vector<Words> posted_;        ///< By member, of the operation's first sync.
  std::vector<std::byte*> staging_;  ///< By member: its first set.
};

}  // namespace hanji::shm::internal
