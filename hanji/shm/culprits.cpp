#include "hanji/shm/internal/culprits.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/shm/internal/hang_words.h"

namespace hanji::shm::internal {
namespace {

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
                    name_rank(snapshot.of_rank(wait.waiter->rank)), list_ranks(others),
                    describe_operation(*wait.group, wait.waiter->begun),
                    describe_call(*wait.waiter), seconds_since(snapshot, *wait.waiter->waiting_ns));
    separator = ';';
  }
  return verdict;
}

/// All of this host wait, for messages of others.
HangVerdict describe_elsewhere(const Snapshot& snapshot, const std::vector<Wait>& waits) {
  const Wait* first = nullptr;
  for (const Wait& wait : waits) {
    if (!wait.is_elsewhere()) continue;
    if (first == nullptr || *wait.waiter->waiting_ns < *first->waiter->waiting_ns) first = &wait;
  }
  std::vector<int> ranks;
  for (const Wait& wait : waits) {
    if (wait.group == first->group) ranks.push_back(wait.waiter->rank);
  }
  HangVerdict verdict;
  verdict.kind = HangKind::kElsewhere;
  verdict.culprits = first->group->elsewhere;
  verdict.group = first->group->id;
  verdict.operation = first->waiter->begun;
  std::ranges::sort(verdict.culprits);
  verdict.sentence = fmt::format(
      "{} {} in {}, {}, for {}, and no rank of this host is missing there; what {} {} is not known "
      "here ({}): run hanji debug on their host",
      list_ranks(ranks), plural(ranks, "waits", "wait"),
      describe_operation(*first->group, first->waiter->begun), describe_call(*first->waiter),
      seconds_since(snapshot, *first->waiter->waiting_ns), list_ranks(verdict.culprits),
      plural(verdict.culprits, "does", "do"), describe_other_hosts(snapshot));
  return verdict;
}

}  // namespace

HangVerdict blame(HangKind kind, const Snapshot& snapshot, const std::vector<Wait>& waits,
                  const std::vector<int>& culprits, const std::function<std::string(int)>& what) {
  HangVerdict verdict;
  verdict.kind = kind;
  verdict.culprits = culprits;
  std::ranges::sort(verdict.culprits);
  for (const int rank : verdict.culprits) {
    verdict.sentence += fmt::format("{} {}, {}; ", name_rank(snapshot.of_rank(rank)), what(rank),
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
                      name_rank(snapshot.of_rank(member.rank)),
                      describe_operation(group, member.begun), base::name_of(member.failed))};
    }
  }
  return {};
}

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
                        name_rank(snapshot.of_rank(a.rank)), a.call->arguments, a.call->call_site,
                        name_rank(snapshot.of_rank(b.rank)), b.call->arguments, b.call->call_site)};
      }
    }
  }
  return {};
}

HangVerdict judge_waits(const Snapshot& snapshot, const std::vector<Wait>& waits) {
  std::set<int> waiters;
  for (const Wait& wait : waits) {
    if (!wait.missing.empty() || wait.is_elsewhere()) waiters.insert(wait.waiter->rank);
  }
  std::vector<int> absent;
  for (const int rank : all_missing(waits)) {
    if (!waiters.contains(rank)) absent.push_back(rank);
  }
  if (absent.empty()) {
    return std::ranges::any_of(waits, &Wait::is_elsewhere) ? describe_elsewhere(snapshot, waits)
                                                           : describe_circle(snapshot, waits);
  }
  return blame(HangKind::kAbsent, snapshot, waits, absent,
               [&](int rank) { return describe_absence(snapshot.of_rank(rank), waits); });
}

}  // namespace hanji::shm::internal
