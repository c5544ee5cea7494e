#include "hanji/shm/internal/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/base/units.h"
#include "hanji/shm/call.h"
#include "hanji/shm/call_site.h"
#include "hanji/shm/liveness.h"
#include "hanji/shm/tag.h"
#include "hanji/trace/recorder.h"

namespace hanji::shm::internal {
namespace {

using schedule::Routine;

std::string where(const GroupLines& lines, uint64_t operation) {
  if (lines.group() < kMaxGroups) {
    return fmt::format("operation {} of group {}", operation, lines.group());
  }
  const Segment& segment = lines.segment();
  const int channel = lines.group() - kMaxGroups;
  return fmt::format("message {} from rank {} to rank {}", operation,
                     name_of_rank(segment, channel / segment.ranks()),
                     name_of_rank(segment, channel % segment.ranks()));
}

std::string rank_name(const GroupLines& lines, int member) {
  const int world_rank = lines.world_rank(member);
  const int named = name_of_rank(lines.segment(), world_rank);
  const std::string coordinates = coordinates_of_rank(lines.segment(), world_rank);
  if (!coordinates.empty()) return fmt::format("rank {} ({})", named, coordinates);
  if (named != world_rank || world_rank == member || lines.group() >= kMaxGroups) {
    return fmt::format("rank {}", named);
  }
  return fmt::format("rank {} (rank {} of the host)", member, world_rank);
}

// The first field in which two calls differ, with both values.
std::string difference(const Descriptor& a, const Descriptor& b) {
  const auto say = [](std::string_view field, const auto& mine, const auto& theirs) {
    return fmt::format("{} is {} there and {} here", field, mine, theirs);
  };
  if (a.routine != b.routine) return say("the routine", name_of(a.routine), name_of(b.routine));
  if (a.dtype != b.dtype) return say("the dtype", name_of(a.dtype), name_of(b.dtype));
  if (a.count != b.count) return say("the count", a.count, b.count);
  if (a.op != b.op) return say("the op", name_of(a.op), name_of(b.op));
  if (a.root != b.root) return say("the root", a.root, b.root);
  if (a.tag != b.tag) return say("the tag", say_tag(a.tag), say_tag(b.tag));
  if (a.uneven != b.uneven) {
    const auto word = [](bool uneven) { return uneven ? "uneven" : "even"; };
    return fmt::format("the counts per rank are {} there and {} here", word(a.uneven),
                       word(b.uneven));
  }
  if (a.fingerprint != b.fingerprint) {
    return fmt::format("{}the step lists differ (fingerprint {:08x} there and {:08x} here)",
                       a.uneven ? "the counts per rank or " : "", a.fingerprint, b.fingerprint);
  }
  return say("the number of the operation (mod 65536)", a.operation, b.operation);
}

// How many members posted the same as this one.
int64_t num_alike(const std::vector<Words>& posted, const Words& words) {
  return std::count_if(posted.begin(), posted.end(),
                       [&](const Words& other) { return same_call(words, other); });
}

// Whether the member whose lines these are waits for another one in `operation`: that one has not begun it, or
// is behind within it.
bool is_behind(const GroupLines& lines, int member, uint64_t operation) {
  const uint64_t begun = lines.last_operation(member);
  if (begun != operation) return begun < operation;
  return lines.last_completed(member) < operation &&
         lines.last_sequence(member) < lines.last_sequence(lines.me());
}

// What the rank does instead, as far as its words in the segment tell. Where it waits for others in
// another group, or did until a moment ago, so do they: `seen` has whom the text names already.
std::string whereabouts(const GroupLines& lines, int member, uint64_t seen) {
  const RankState& state = lines.segment().rank_state(lines.world_rank(member));
  const auto presence = static_cast<Presence>(state.presence.load());
  if (presence == Presence::kAbsent) return "it never joined";
  if (presence == Presence::kLeft) return "it left";
  const uint64_t waiting = state.waiting.load(std::memory_order_acquire);
  const double silent = static_cast<double>(base::now_ns() - state.heartbeat_ns.load()) / 1e9;
  std::string text = fmt::format("process {}, last heartbeat {} ago", state.pid.load(),
                                 base::format_seconds(silent));
  if (waiting == 0) {
    const int rank = lines.world_rank(member);
    const auto recorder = trace::Recorder::attach(lines.segment().trace_memory(rank));
    const std::string spans = recorder.ok() ? recorder->open_spans() : "";
    return text + ", is not waiting for anybody" + (spans.empty() ? "" : ", is in " + spans);
  }
  const uint64_t operation = waiting & (kGaveUp - 1);
  const GroupLines other = lines.of(static_cast<int>(waiting >> 48) - 1, lines.world_rank(member));
  text += (waiting & kGaveUp) != 0 ? ", gave up in " : ", waits in ";
  text += where(other, operation);
  std::string_view separator = " for ";
  for (int late = 0; late < other.size(); ++late) {
    const uint64_t bit = uint64_t{1} << other.world_rank(late);
    if (!is_behind(other, late, operation) || (seen & bit) != 0) continue;
    seen |= bit;
    text += fmt::format("{}{}: {}; {}", std::exchange(separator, "; for "), rank_name(other, late),
                        last_call(other, late), whereabouts(other, late, seen));
  }
  return text;
}

}  // namespace

std::string last_call(const GroupLines& lines, int member) {
  const uint64_t sequence = lines.last_sequence(member);
  if (sequence == 0) return "it made no call in this group";
  Words words;
  lines.read(member, sequence, words);
  const Descriptor call = decode(words);
  return fmt::format("its last call here was operation {}, {}", lines.last_operation(member),
                     describe_call(lines, member, call));
}

std::string own_last_call(const GroupLines& lines) {
  Words words;
  lines.read(lines.me(), lines.last_sequence(lines.me()), words);
  const uint64_t number = lines.last_operation(lines.me());
  return fmt::format(
      "its last call was {}, {}",
      lines.group() < kMaxGroups ? fmt::format("operation {}", number) : where(lines, number),
      describe_call(lines, lines.me(), decode(words)));
}

std::string describe_arguments(const Descriptor& call, bool receives) {
  if (call.tag == kComparisonTag) return "comparison of calls";
  std::string text(receives ? "recv" : name_of(call.routine));
  if (call.routine == Routine::kBarrier) return text + "()";
  text += "(";
  if (reduces(call.routine)) text += fmt::format("{}, ", name_of(call.op));
  text += fmt::format("{}, {} elements", name_of(call.dtype), call.count);
  if (has_root(call.routine)) text += fmt::format(", root {}", call.root);
  if (const uint64_t number = number_in(call.tag); number != 0) {
    text += fmt::format(", tag {}", number);
  }
  return text + ")";
}

std::string describe_call(const GroupLines& lines, int member, const Descriptor& call) {
  const bool receives = call.routine == Routine::kSend && member == 1;
  const auto& sites = lines.segment().call_sites();
  return describe_arguments(call, receives) + " at " +
         sites.describe(lines.world_rank(member), call.call_site);
}

Status mismatch_verdict(const GroupLines& lines, const std::vector<Words>& posted,
                        uint64_t operation) {
  // The reference is what most members said; among equals, what the lowest of them said.
  int reference = 0;
  for (int member = 1; member < lines.size(); ++member) {
    if (num_alike(posted, posted[member]) > num_alike(posted, posted[reference])) {
      reference = member;
    }
  }
  const Descriptor due = decode(posted[reference]);
  std::string text = fmt::format("{}: {} calls {}", where(lines, operation),
                                 rank_name(lines, reference), describe_call(lines, reference, due));
  for (int member = 0; member < lines.size(); ++member) {
    if (same_call(posted[member], posted[reference])) continue;
    const Descriptor done = decode(posted[member]);
    text += fmt::format("; {} calls {}: {}", rank_name(lines, member),
                        describe_call(lines, member, done), difference(done, due));
  }
  return base::mismatch(text + "; every rank must make the same calls in the same order");
}

Status timeout_verdict(const GroupLines& lines, const Waiting& waiting) {
  std::string text = fmt::format(
      "{}: {} waited {} in {}", where(lines, waiting.operation), rank_name(lines, lines.me()),
      base::format_seconds(waiting.seconds), describe_call(lines, lines.me(), waiting.call));
  for (int member = 0; member < lines.size(); ++member) {
    if (lines.has_posted(member, waiting.sequence)) continue;
    text += fmt::format("; absent {}: {}; {}", rank_name(lines, member), last_call(lines, member),
                        whereabouts(lines, member, uint64_t{1} << lines.world_rank(member)));
  }
  return base::timeout(text + "; look there first, or raise comm.deadline if it is only slow");
}

Status cancelled_verdict(const GroupLines& lines, const GroupLines::Cancelled& by,
                         const Descriptor* mine) {
  std::string text =
      fmt::format("{}: {} cancelled it", where(lines, by.operation), rank_name(lines, by.member));
  if (mine != nullptr) {
    text += fmt::format(" while {} was in {}", rank_name(lines, lines.me()),
                        describe_call(lines, lines.me(), *mine));
  }
  return base::cancelled(text +
                         "; what the group had under way is lost on every rank; make a new "
                         "group to go on");
}

Status left_verdict(const GroupLines& lines, const Waiting& waiting, int member) {
  return base::peer_lost(fmt::format(
      "{}: {} left the job while {} waits for it in {}; {}; every rank must make the same calls",
      where(lines, waiting.operation), rank_name(lines, member), rank_name(lines, lines.me()),
      describe_call(lines, lines.me(), waiting.call), last_call(lines, member)));
}

Status gave_up_verdict(const GroupLines& lines, const Waiting& waiting, int member) {
  const Code code = lines.failed(member);
  return Status(
      code, fmt::format("{}: {} gave up ({}) while {} waits for it in {}; {}; its own "
                        "message tells why",
                        where(lines, waiting.operation), rank_name(lines, member), name_of(code),
                        rank_name(lines, lines.me()),
                        describe_call(lines, lines.me(), waiting.call), last_call(lines, member)));
}

}  // namespace hanji::shm::internal
