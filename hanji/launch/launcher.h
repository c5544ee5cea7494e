#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/launch/inherited.h"
#include "hanji/launch/multi_host.h"
#include "hanji/shm/segment.h"

namespace hanji::launch {

/// Where the output of rank 0 goes if there is a log folder.
enum class Rank0Output {
  kLog,             ///< To its log, as every other rank's.
  kLogAndLauncher,  ///< To its log, and copied to the launcher's own stdout and stderr.
  kLauncher,        ///< Only to the launcher's own stdout and stderr, which may be a terminal.
};

/// Who reacts to stop signals (base/stop_signals.h) while ranks run.
enum class Signals {
  kForward,  ///< The launcher: each once to all ranks; a second INT kills.
  kLeave,    ///< The program, as before.
};

enum class RankEventKind {
  kStarted,     ///< `rank` runs as `pid`.
  kEnded,       ///< `rank` exited with code 0, or as a forwarded signal asked it to.
  kFailed,      ///< `rank` failed first, or turned out to be why those before it did.
  kSecondary,   ///< `rank` failed after another one had.
  kStack,       ///< `rank` crashed or hangs, and this is where: one line per frame.
  kForwarded,   ///< A signal was passed on to all ranks.
  kTerminated,  ///< TERM was sent to the ranks that outlived the failed one.
  kKilled,      ///< KILL was sent to the ranks that did not end in time.
  kCause,       ///< All have ended: once more why, as the last word.
  kWaits,       ///< The threads of ranks wait asleep, and why: run.h decides it before they start.
  kJoined,      ///< All hosts have come; their ranks start.
  kRefused,     ///< Somebody wanted to join the run who may not.
  kRestarted,   ///< All are started again; see restart.h.
  kGaveUp,      ///< They are not, and why; see restart.h.
  kNotKept,     ///< A file about this run (flight.json, ranks.json) could not be written, and why.
};

/// One thing that happened, told at once.
struct RankEvent {
  RankEventKind kind = RankEventKind::kStarted;
  int rank = -1;  ///< Among those of all hosts; -1: all of them.
  pid_t pid = -1;
  std::string text;  ///< One line for people, of kStack several: who, where, what, why.
};

/// What the death of one rank means for the others.
enum class OnDeath {
  kStop,      ///< The run is over: they get time to name it, then TERM, then KILL.
  kContinue,  ///< Theirs to decide: they see the death themselves, and may go on without it.
};

struct LaunchOptions {
  std::vector<std::string> command;      ///< Program (searched in PATH) and its arguments.
  Program program = Program::kOther;     ///< kThis: the command starts this very program.
  int ranks = 1;                         ///< On this host.
  std::optional<MultiHost> hosts;        ///< Of a run on several hosts; see launch().
  std::string plan_json;                 ///< Handed to every rank; empty if there is none.
  std::vector<std::vector<int>> cpus;    ///< Per rank, the CPUs it is pinned to; empty: not pinned.
  std::vector<std::string> environment;  ///< "NAME=value", stronger than what is inherited.
  /// Rank r writes to rank.r in it; after a failure flight.json is there too. Empty: where we write.
  std::filesystem::path log_directory;
  Rank0Output rank0_output = Rank0Output::kLog;
  Signals signals = Signals::kForward;
  OnDeath on_death = OnDeath::kStop;
  /// This process has no children but its ranks: it adopts and reaps what they leave behind.
  bool adopts_orphans = false;
  /// The program reads stop signals, saves, and ends with 75, or 130 after INT: they are held from its
  /// first instruction on, and a rank that is killed before its first step had nothing to save.
  bool saves_at_stop = false;
  int restart_count = 0;  ///< Told to the ranks in TORCHELASTIC_RESTART_COUNT, as torchrun does.
  shm::SegmentOptions segment;  ///< Its ranks, build id and plan hash are filled in here.
  std::chrono::milliseconds verdict_time{500};   ///< Survivors may name the dead rank before TERM.
  std::chrono::milliseconds kill_grace{10'000};  ///< From TERM to KILL after a failure.
  std::chrono::milliseconds stop_grace{30'000};  ///< From a forwarded signal to KILL.
  std::function<void(const RankEvent&)> on_event;
};

/// How one rank ended.
struct RankExit {
  int rank = 0;  ///< On this host.
  pid_t pid = -1;
  int exit_code = 0;  ///< Of exit(); 0 if a signal ended it.
  int signal = 0;     ///< That ended it, or 0.
  bool secondary = false;
  int64_t peak_bytes = 0;   ///< Of its resident memory.
  std::string coordinates;  ///< On a mesh of several axes, as its recorder tells: "dp=1,tp=0".
  int64_t step = -1;        ///< That its recorder stood at; -1 if it recorded none.
  std::string spans;        ///< That it ended in: "forward"; see trace::Recorder::open_spans().
  Status report;            ///< What the rank told by report_failure(), or ok.

  bool failed() const { return exit_code != 0 || signal != 0; }
};

/// How all of them ended.
struct Outcome {
  int exit_code = 0;      ///< Of the first failing rank, or 128 + its signal.
  int first_failed = -1;  ///< Its rank on this host; -1 if all ended as they should, or elsewhere.
  int stop_signal = 0;    ///< The last one that was passed on to the ranks, or 0.
  std::string cause;  ///< One line about the first failure, else about the signal that stopped the
                      ///< ranks; empty if all ended with code 0.
  std::vector<RankExit> ranks;
};

/// "was killed by SIGKILL", "exited with code 3", with the rank's own report if it made one.
std::string describe(const RankExit& exit);

/// Starts the ranks of one host, watches them and returns when all have ended.
///
/// Each rank inherits the segment, a control socket, the plan and its peers' pidfds, which
/// inherited_endpoints() finds. When one fails, the others get verdict_time to name it, then TERM,
/// then KILL; with OnDeath::kContinue they are left alone, and the exit code is still that of the
/// one that failed first. Ranks die with the launcher, however it dies, and leave nothing behind.
///
/// With `hosts`, every host calls this for its own ranks, which start once all hosts have come. What
/// fails on any host ends the ranks of all, and all return the same exit code and cause; so does a
/// host that is lost. A signal to one launcher is passed on to the ranks of all.
///
/// Order   calls on_event from the calling thread, at once.
/// Cost    one fork and exec per rank; sleeps in poll(2) until something happens.
/// Errors  kNotFound, kInvalidArgument if the ranks cannot be started; none is left running.
///         kUnsupported for OnDeath::kContinue on several hosts.
///         A rank's failure is an Outcome, not an error.
/// Thread  one launch with Signals::kForward at a time per process.
Result<Outcome> launch(const LaunchOptions& options);

/// What a forked rank does; its Status is reported to the parent.
using RankBody = std::function<Status(Inherited)>;

/// As launch(), but each rank is a copy of this process that runs `body` and ends: options.command
/// is not used, and descriptors that the program had open stay open in the ranks.
///
/// Call it before any thread pool starts: only the calling thread lives on in a copy.
Result<Outcome> fork_ranks(const LaunchOptions& options, const RankBody& body);

}  // namespace hanji::launch
