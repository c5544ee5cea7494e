#include "hanji/shm/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "hanji/base/units.h"

namespace hanji::shm {
namespace {

/// One rank that waits, and the members that have not come to where it is.
struct Wait {
  const GroupSnapshot* group;
  const MemberSnapshot* waiter;
  std::vector<const MemberSnapshot*> missing;
};

/// "rank 1", "ranks 0, 2 and 3".
std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i != 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string plural(const std::vector<int>& ranks, std::string_view one, std::string_view many) {
  return std::string(ranks.size() == 1 ? one : many);
}

std::string seconds_since(const Snapshot& snapshot, int64_t since_ns) {
  const int64_t passed = std::max<int64_t>(snapshot.taken_ns - since_ns, 0);
  return base::format_seconds(static_cast<double>(passed) / 1e9);
}

bool is_behind(const MemberSnapshot& member, const MemberSnapshot& waiter) {
  if (member.begun < waiter.begun) return true;
  return member.begun == waiter.begun && member.inside() && member.sequence < waiter.sequence;
}

std::vector<Wait> find_waits(const Snapshot& snapshot) {
  std::vector<Wait> waits;
  for (const GroupSnapshot& group : snapshot.groups) {
    for (const MemberSnapshot& waiter : group.members) {
      if (!waiter.waiting_ns) continue;
      Wait wait{&group, &waiter, {}};
      for (const MemberSnapshot& member : group.members) {
        if (is_behind(member, waiter)) wait.missing.push_back(&member);
      }
      waits.push_back(std::move(wait));
    }
  }
  return waits;
}

const Wait* longest(const std::vector<Wait>& waits) {
  const auto since = [](const Wait& wait) { return *wait.waiter->waiting_ns; };
  const auto found = std::ranges::min_element(waits, {}, since);
  return found == waits.end() ? nullptr : &*found;
}

std::string describe_call(const MemberSnapshot& member) {
  if (!member.call || member.call->operation != member.begun) return "a call";
  return member.call->arguments + " at " + member.call->call_site;
}

/// "operation 4 of group 0, barrier() at x.cpp:3", of the last call that it posted here.
std::string describe_last(const GroupSnapshot& group, const MemberSnapshot& member) {
  if (!member.call) return "it made no call there";
  return fmt::format("its last call there was {}, {} at {}",
                     describe_operation(group, member.call->operation), member.call->arguments,
                     member.call->call_site);
}

/// What a rank does that nobody sees in a call.
std::string describe_state(const RankSnapshot& rank) {
  switch (rank.state) {
    case 'R': return "it computes (state R)";
    case 'S': return "it sleeps outside of hanji's calls (state S)";
    case 'D': return "it waits for a disk or device (state D)";
    default: return fmt::format("its state is {}", rank.state);
  }
}

std::string name_rank(const RankSnapshot& rank) {
  std::string text = fmt::format("rank {} (process {}", rank.rank, rank.pid);
  if (rank.step > 0) text += fmt::format(", step {}", rank.step);
  return text + ")";
}

/// Everybody that waits for one of `culprits`: who, where, how long.
std::string describe_waiters(const Snapshot& snapshot, const std::vector<Wait>& waits,
                             const std::set<int>& culprits) {
  const Wait* first = nullptr;
  std::vector<int> ranks;
  for (const Wait& wait : waits) {
    const bool meant = std::ranges::any_of(wait.missing, [&](const MemberSnapshot* member) {
      return culprits.contains(member->rank);
    });
    if (!meant) continue;
    if (first == nullptr || *wait.waiter->waiting_ns < *first->waiter->waiting_ns) first = &wait;
    ranks.push_back(wait.waiter->rank);
  }
  if (first == nullptr) return "nobody waits for it yet";
  std::ranges::sort(ranks);
  return fmt::format(
      "{} {} for it in {}, {}, for {}", list_ranks(ranks), plural(ranks, "waits", "wait"),
      describe_operation(*first->group, first->waiter->begun), describe_call(*first->waiter),
      seconds_since(snapshot, *first->waiter->waiting_ns));
}

/// Where the longest wait for one of the culprits is.
void point_at(const std::vector<Wait>& waits, HangVerdict& verdict) {
  int64_t since = INT64_MAX;
  for (const Wait& wait : waits) {
    for (const MemberSnapshot* member : wait.missing) {
      const bool meant = std::ranges::count(verdict.culprits, member->rank) != 0;
      if (!meant || *wait.waiter->waiting_ns >= since) continue;
      since = *wait.waiter->waiting_ns;
      verdict.group = wait.group->id;
      verdict.operation = wait.waiter->begun;
    }
  }
}

/// The last call that a rank posted in the group where it was missed, or in any.
std::string describe_whereabouts(const Snapshot& snapshot, const std::vector<Wait>& waits,
                                 int rank) {
  for (const Wait& wait : waits) {
    for (const MemberSnapshot* member : wait.missing) {
      if (member->rank == rank) return describe_last(*wait.group, *member);
    }
  }
  for (const GroupSnapshot& group : snapshot.groups) {
    for (const MemberSnapshot& member : group.members) {
      if (member.rank == rank && member.call) return describe_last(group, member);
    }
  }
  return "it made no call";
}

/// `what` is true of the culprits, each by itself.
HangVerdict blame(HangKind kind, const Snapshot& snapshot, const std::vector<Wait>& waits,
                  const std::vector<int>& culprits, const std::function<std::string(int)>& what) {
  HangVerdict verdict;
  verdict.kind = kind;
  verdict.culprits = culprits;
  std::ranges::sort(verdict.culprits);
  for (const int rank : verdict.culprits) {
    verdict.sentence += fmt::format("{} {}, {}; ", name_rank(snapshot.ranks[rank]), what(rank),
                                    describe_whereabouts(snapshot, waits, rank));
  }
  verdict.sentence += describe_waiters(snapshot, waits, {culprits.begin(), culprits.end()});
  point_at(waits, verdict);
  return verdict;
}

std::vector<int> ranks_that(const Snapshot& snapshot,
                            const std::function<bool(const RankSnapshot&)>& holds) {
  std::vector<int> ranks;
  for (const RankSnapshot& rank : snapshot.ranks) {
    if (holds(rank)) ranks.push_back(rank.rank);
  }
  return ranks;
}

std::set<int> all_missing(const std::vector<Wait>& waits) {
  std::set<int> ranks;
  for (const Wait& wait : waits) {
    for (const MemberSnapshot* member : wait.missing) ranks.insert(member->rank);
  }
  return ranks;
}

/// Two members of a group began one operation with different calls.
std::optional<HangVerdict> find_different_calls(const Snapshot& snapshot) {
  for (const GroupSnapshot& group : snapshot.groups) {
    if (group.sender) continue;
    for (const MemberSnapshot& a : group.members) {
      for (const MemberSnapshot& b : group.members) {
        if (a.rank >= b.rank || !a.call || !b.call) continue;
        const bool same = a.call->operation == b.call->operation && a.inside() && b.inside();
        if (!same || a.call->arguments == b.call->arguments) continue;
        return HangVerdict{
            HangKind::kDiverged,
            {a.rank, b.rank},
            group.id,
            a.call->operation,
            fmt::format("the calls differ since {}: {} calls {} at {}, {} calls {} at {}",
                        describe_operation(group, a.call->operation),
                        name_rank(snapshot.ranks[a.rank]), a.call->arguments, a.call->call_site,
                        name_rank(snapshot.ranks[b.rank]), b.call->arguments, b.call->call_site)};
      }
    }
  }
  return {};
}

/// All that are missed wait themselves: for each other, in different calls.
HangVerdict describe_circle(const Snapshot& snapshot, const std::vector<Wait>& waits) {
  const std::set<int> missing = all_missing(waits);
  HangVerdict verdict;
  verdict.kind = HangKind::kDiverged;
  verdict.culprits.assign(missing.begin(), missing.end());
  point_at(waits, verdict);
  verdict.sentence = "the ranks wait for each other in different calls";
  char separator = ':';
  for (const Wait& wait : waits) {
    if (!missing.contains(wait.waiter->rank)) continue;
    std::vector<int> others;
    for (const MemberSnapshot* member : wait.missing) others.push_back(member->rank);
    verdict.sentence +=
        fmt::format("{} {} waits for {} in {}, {}, for {}", separator,
                    name_rank(snapshot.ranks[wait.waiter->rank]), list_ranks(others),
                    describe_operation(*wait.group, wait.waiter->begun),
                    describe_call(*wait.waiter), seconds_since(snapshot, *wait.waiter->waiting_ns));
    separator = ';';
  }
  return verdict;
}

std::string describe_absence(const RankSnapshot& rank, const std::vector<Wait>& waits) {
  for (const Wait& wait : waits) {
    for (const MemberSnapshot* member : wait.missing) {
      if (member->rank != rank.rank) continue;
      if (member->begun == wait.waiter->begun) {
        return "has begun the call and does not go on with it: " + describe_state(rank);
      }
      return fmt::format("has not come to {}: {}",
                         describe_operation(*wait.group, wait.waiter->begun), describe_state(rank));
    }
  }
  return describe_state(rank);
}

HangVerdict judge_waits(const Snapshot& snapshot, const std::vector<Wait>& waits) {
  std::set<int> waiters;
  for (const Wait& wait : waits) {
    if (!wait.missing.empty()) waiters.insert(wait.waiter->rank);
  }
  std::vector<int> absent;
  for (const int rank : all_missing(waits)) {
    if (!waiters.contains(rank)) absent.push_back(rank);
  }
  if (absent.empty()) return describe_circle(snapshot, waits);
  return blame(HangKind::kAbsent, snapshot, waits, absent,
               [&](int rank) { return describe_absence(snapshot.ranks[rank], waits); });
}

HangVerdict nothing_hangs(const Snapshot& snapshot, const Wait* wait) {
  HangVerdict verdict;
  const auto alive = ranks_that(snapshot, [](const auto& rank) { return rank.alive(); });
  if (alive.empty()) {
    verdict.sentence = "no rank is in the job: none has come yet, or all have left";
  } else if (wait == nullptr) {
    verdict.sentence = fmt::format("nothing hangs: {} {}, and nobody waits for anybody",
                                   list_ranks(alive), plural(alive, "is alive", "are alive"));
  } else {
    verdict.sentence = fmt::format(
        "nothing hangs: the longest wait is that of rank {} in {}, {}, for {}", wait->waiter->rank,
        describe_operation(*wait->group, wait->waiter->begun), describe_call(*wait->waiter),
        seconds_since(snapshot, *wait->waiter->waiting_ns));
  }
  return verdict;
}

std::string describe_loss(const RankSnapshot& rank) {
  switch (rank.presence) {
    case RankPresence::kNeverCame: return "never joined the job";
    case RankPresence::kLeft: return "left the job";
    default: return "is dead";
  }
}

/// Dead, or not there and `missing`.
std::vector<int> lost_ranks(const Snapshot& snapshot, const std::set<int>& missing) {
  return ranks_that(snapshot, [&](const RankSnapshot& rank) {
    const bool died = rank.presence == RankPresence::kDied ||
                      (rank.presence == RankPresence::kHere && !rank.alive());
    return died || (!rank.alive() && missing.contains(rank.rank));
  });
}

std::optional<HangVerdict> find_given_up(const Snapshot& snapshot) {
  for (const GroupSnapshot& group : snapshot.groups) {
    for (const MemberSnapshot& member : group.members) {
      if (member.failed == Code::kOk) continue;
      return HangVerdict{
          HangKind::kGaveUp,
          {member.rank},
          group.id,
          member.begun,
          fmt::format("{} gave up in {} ({}); its own message tells why",
                      name_rank(snapshot.ranks[member.rank]),
                      describe_operation(group, member.begun), base::name_of(member.failed))};
    }
  }
  return {};
}

}  // namespace

std::string_view name_of(HangKind kind) {
  switch (kind) {
    case HangKind::kEnded: return "ended";
    case HangKind::kDead: return "dead";
    case HangKind::kStopped: return "stopped";
    case HangKind::kGaveUp: return "gave_up";
    case HangKind::kDiverged: return "diverged";
    case HangKind::kAbsent: return "absent";
    case HangKind::kNone: return "none";
  }
  return "unknown";
}

std::string describe_operation(const GroupSnapshot& group, uint64_t operation) {
  if (!group.sender) return fmt::format("operation {} of group {}", operation, group.id);
  return fmt::format("message {} from rank {} to rank {}", operation, *group.sender,
                     group.members.back().rank);
}

uint64_t present_operation(const GroupSnapshot& group) {
  uint64_t last = 0;
  for (const MemberSnapshot& member : group.members) last = std::max(last, member.begun);
  return last;
}

std::vector<int> arrived(const GroupSnapshot& group, uint64_t operation) {
  std::vector<int> ranks;
  for (const MemberSnapshot& member : group.members) {
    if (member.begun >= operation) ranks.push_back(member.rank);
  }
  return ranks;
}

std::vector<int> delivered(const GroupSnapshot& group, uint64_t operation) {
  std::vector<int> ranks;
  for (const MemberSnapshot& member : group.members) {
    if (member.completed >= operation) ranks.push_back(member.rank);
  }
  return ranks;
}

HangVerdict judge(const Snapshot& snapshot, std::chrono::nanoseconds patience) {
  if (snapshot.end) {
    HangVerdict verdict;
    verdict.kind = HangKind::kEnded;
    if (snapshot.end->rank >= 0) verdict.culprits = {snapshot.end->rank};
    verdict.sentence = fmt::format("the job has ended ({}): {}", base::name_of(snapshot.end->code),
                                   snapshot.end->text);
    return verdict;
  }
  const std::vector<Wait> waits = find_waits(snapshot);
  const std::set<int> missing = all_missing(waits);
  const Wait* wait = longest(waits);
  const bool hangs = wait != nullptr && !missing.empty() &&
                     snapshot.taken_ns - *wait->waiter->waiting_ns >= patience.count();
  // A rank that has not come yet may be starting.
  const auto lost = lost_ranks(snapshot, hangs ? missing : std::set<int>());
  if (!lost.empty()) {
    return blame(HangKind::kDead, snapshot, waits, lost,
                 [&](int rank) { return describe_loss(snapshot.ranks[rank]); });
  }
  const auto stopped = ranks_that(snapshot, [](const auto& rank) { return rank.stopped(); });
  if (!stopped.empty()) {
    return blame(HangKind::kStopped, snapshot, waits, stopped, [&](int rank) {
      return fmt::format("is stopped (state {})", snapshot.ranks[rank].state);
    });
  }
  if (auto given_up = find_given_up(snapshot)) return *given_up;
  if (auto different = find_different_calls(snapshot)) return *different;
  return hangs ? judge_waits(snapshot, waits) : nothing_hangs(snapshot, wait);
}

}  // namespace hanji::shm
