#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hanji/base/fd.h"
#include "hanji/base/run_clock.h"
#include "hanji/base/status.h"
#include "hanji/shm/segment.h"

namespace hanji::shm {

/// What a watchdog saw of another rank. kEnded: the job cannot go on, and why; told once. kOrphaned:
/// the launcher of this rank died.
struct LivenessEvent {
  enum class Kind { kEnded, kStopped, kResumed, kOrphaned } kind;
  int rank;          ///< kOrphaned: this one.
  std::string text;  ///< One sentence for a log.
};

struct WatchdogOptions {
  std::chrono::nanoseconds heartbeat = std::chrono::seconds(5);
  /// A rank that stops is named within so many heartbeats.
  int missed_heartbeats = 3;
  /// So long a launcher that waits for the same death may tell its cause before we name it.
  std::chrono::nanoseconds launcher_time = std::chrono::nanoseconds(0);
  /// The process of a launcher whose death is told by kOrphaned; 0: none is watched.
  int launcher = 0;
  /// Called on the watchdog's thread, or by its destructor; must not block.
  std::function<void(const LivenessEvent&)> on_event = {};
};

/// Says that this rank lives and sees when another dies.
///
/// One thread that sleeps on the peers' pidfds. A peer that dies without having left ends the job
/// by Segment::abort(), so that every wait on every rank names it at once; one that was stopped is
/// told to on_event and otherwise left to the deadlines. Time for which this process itself was paused
/// (base/run_clock.h) counts as silence of nobody.
class Watchdog {
 public:
  /// Joins the segment as `rank`. `pidfds` by rank; invalid ones are not watched.
  static Result<std::unique_ptr<Watchdog>> start(std::shared_ptr<Segment> segment, int rank,
                                                 std::vector<base::Fd> pidfds,
                                                 WatchdogOptions options = {});
  /// Leaves the segment: from now on the end of this process is no fault.
  ~Watchdog();

 private:
  /// Beside those of the peers.
  struct Descriptors {
    base::Fd stop;
    base::Fd launcher;
  };
  Watchdog(std::shared_ptr<Segment> segment, int rank, std::vector<base::Fd> pidfds,
           WatchdogOptions options, Descriptors own, base::PauseWatch pauses);
  void run();
  std::vector<pollfd> descriptors() const;
  void beat();
  std::chrono::nanoseconds check_heartbeats();
  void see_death(int rank);
  void see_launcher_death();
  void wait_for_launcher_report() const;
  void log_verdict();
  void notify(LivenessEvent::Kind kind, int rank, std::string text) const;

  std::shared_ptr<Segment> segment_;
  int rank_;
  std::vector<base::Fd> pidfds_;
  WatchdogOptions options_;
  Descriptors own_;
  base::PauseWatch pauses_;
  std::vector<bool> stopped_;           ///< By rank: named already.
  std::optional<uint32_t> epoch_told_;  ///< Whose verdict was told.
  std::thread thread_;
};

/// The number of a rank of this segment among the ranks of all hosts, if its recorder tells.
std::optional<int> rank_in_world(const Segment& segment, int rank);
/// What a rank of this segment is called: its number among all ranks, or `rank` if unknown.
int name_of_rank(const Segment& segment, int rank);
/// Its coordinates on a mesh of several axes, as its recorder tells: "dp=1,tp=0"; else empty.
std::string coordinates_of_rank(const Segment& segment, int rank);
/// "rank 1 (host vm, process 4711, dp=1,tp=0, step 57, in forward)", as far as the segment knows, also
/// of a dead rank.
std::string describe_rank(const Segment& segment, int rank);
/// "its last call was operation 12, all_reduce(...) at step.cpp:9", of all groups and messages.
std::string describe_last_call(const std::shared_ptr<Segment>& segment, int rank);
/// The calls of `rank` so far were not its program's: describe_last_call() does not count them.
void forget_last_call(const Segment& segment, int rank);

/// Whether `rank` waits for others in a collective now.
bool waits(const Segment& segment, int rank);

/// A descriptor that becomes readable when the process ends.
Result<base::Fd> open_pidfd(int pid);

}  // namespace hanji::shm
