#include "hanji/shm/internal/hang_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/units.h"
#include "hanji/shm/hang.h"

namespace hanji::shm::internal {
namespace {

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

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i != 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string describe_other_hosts(const Snapshot& snapshot) {
  std::string text;
  for (const OtherHost& host : snapshot.other_hosts) {
    if (!text.empty()) text += ", ";
    if (host.first_rank < 0) {
      text += fmt::format("{} on other hosts",
                          host.num_ranks == 1 ? "1 rank" : fmt::format("{} ranks", host.num_ranks));
    } else if (host.num_ranks == 1) {
      text += fmt::format("rank {} on host {}", host.first_rank, host.name);
    } else {
      text += fmt::format("ranks {}-{} on host {}", host.first_rank,
                          host.first_rank + host.num_ranks - 1, host.name);
    }
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

std::string describe_call(const MemberSnapshot& member) {
  if (!member.call || member.call->operation != member.begun) return "a call";
  return member.call->arguments + " at " + member.call->call_site;
}

std::string name_rank(const RankSnapshot& rank) {
  std::string text = fmt::format("rank {} (process {}", rank.rank, rank.pid);
  if (!rank.coordinates.empty()) text += ", " + rank.coordinates;
  if (rank.step > 0) text += fmt::format(", step {}", rank.step);
  if (!rank.spans.empty()) text += ", in " + rank.spans;
  return text + ")";
}

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
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());  // one may wait in two groups
  return fmt::format(
      "{} {} for it in {}, {}, for {}", list_ranks(ranks), plural(ranks, "waits", "wait"),
      describe_operation(*first->group, first->waiter->begun), describe_call(*first->waiter),
      seconds_since(snapshot, *first->waiter->waiting_ns));
}

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

std::string describe_loss(const RankSnapshot& rank) {
  switch (rank.presence) {
    case RankPresence::kNeverCame: return "never joined the job";
    case RankPresence::kLeft: return "left the job";
    default: return "is dead";
  }
}

}  // namespace hanji::shm::internal
