#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hanji/base/fd.h"
#include "hanji/base/status.h"

namespace hanji::shm {

/// A call as a rank posted it to its peers.
struct PostedCall {
  uint64_t operation = 0;  ///< In its group, from 1.
  std::string routine;     ///< "all_reduce"; "recv" on the receiving side of a message.
  std::string dtype;
  int64_t count = 0;
  std::string arguments;  ///< "all_reduce(sum, float32, 1000 elements)".
  std::string call_site;  ///< "train.cpp:12 (gradients)".
};

/// How far one rank is in one group.
struct MemberSnapshot {
  int rank = 0;             ///< Of the job.
  uint64_t begun = 0;       ///< The operation it is in or was in last; a sender may be ahead of it.
  uint64_t completed = 0;   ///< The last one it has completed: it delivered, and has its result.
  uint64_t sequence = 0;    ///< Of the last sync that it posted, over all operations.
  Code failed = Code::kOk;  ///< Why it gave the group up.
  std::optional<PostedCall> call;     ///< The last one it posted.
  std::optional<int64_t> waiting_ns;  ///< Since when it waits for others here.

  bool inside() const { return begun > completed; }
};

/// A group, or the channel that carries messages from one rank to another.
struct GroupSnapshot {
  int id = 0;
  std::optional<int> sender = {};    ///< Sender of a channel.
  std::optional<int> receiver = {};  ///< Receiver of a channel; none: the last member.
  std::vector<MemberSnapshot> members = {};
  /// Set for a group that exchanges messages, where a member is known by its last wait alone.
  std::string name = {};
  std::vector<int> elsewhere = {};  ///< Its ranks on other hosts.
};

/// A collective that a rank has completed.
struct CompletedCall {
  uint64_t operation = 0;
  int group = -1;
  std::string routine;
  std::string dtype;
  int64_t bytes = 0;
  std::string call_site;
  int64_t step = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

enum class RankPresence { kNeverCame, kHere, kLeft, kDied };

struct RankSnapshot {
  int rank = 0;
  int pid = 0;
  RankPresence presence = RankPresence::kNeverCame;
  /// The kernel's letter: R runs, S sleeps, D waits for a disk, T is stopped, t is traced, Z is
  /// dead; X: there is no such process.
  char state = 'X';
  std::string coordinates;  ///< On a mesh of several axes, as its recorder tells: "dp=1,tp=0".
  int64_t step = 0;
  std::string spans;  ///< That it is in, "forward, checkpoint write", if it has a recorder.
  std::vector<CompletedCall> calls;  ///< The last ones, oldest first.

  bool alive() const { return presence == RankPresence::kHere && state != 'X' && state != 'Z'; }
  bool stopped() const { return alive() && (state == 'T' || state == 't'); }
};

/// The word that ended the job.
struct EndOfJob {
  Code code = Code::kInternal;
  int rank = -1;
  std::string text;
};

/// Ranks of the job that are not in this segment.
struct OtherHost {
  int first_rank = -1;  ///< -1: not known.
  int num_ranks = 0;
  std::string name = {};  ///< Empty: not known, there may be several.
};

/// A job at one moment, as its shared memory on one host and /proc show it. Times are those of
/// base::now_ns(); ranks are numbered among those of all hosts.
struct Snapshot {
  int64_t taken_ns = 0;
  std::string build_id;
  std::optional<EndOfJob> end;
  std::vector<RankSnapshot> ranks;
  std::vector<GroupSnapshot> groups;  ///< Those that somebody has joined.
  std::vector<OtherHost> other_hosts;

  const RankSnapshot& of_rank(int rank) const;  ///< One of `ranks`.
};

/// So many calls of each rank are kept, of engines with a recorder.
inline constexpr size_t kFlightCalls = 4096;

/// Reads the segment of a running job, from outside, without a trace on it: `segment` may be open
/// for reading only, nothing is written, nobody waits. What it says is not trusted. Process ids are
/// looked up in /proc, so look from the container (PID namespace) that the job runs in.
///
/// Result  with at most `max_calls` completed calls of each rank.
/// Cost    milliseconds; a few MiB of addresses per rank, none of the heap.
/// Errors  kCorrupt if it is no segment of this version.
Result<Snapshot> take_snapshot(const base::Fd& segment, size_t max_calls = kFlightCalls);

}  // namespace hanji::shm
