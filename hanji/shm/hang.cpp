#include "hanji/shm/hang.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/shm/internal/culprits.h"
#include "hanji/shm/internal/hang_words.h"

namespace hanji::shm {

using namespace internal;

namespace {

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
  if (!snapshot.other_hosts.empty()) {
    verdict.sentence += fmt::format("; {}: not known here", describe_other_hosts(snapshot));
  }
  return verdict;
}

bool is_awaited(const std::vector<Wait>& waits) {
  return !all_missing(waits).empty() || std::ranges::any_of(waits, &Wait::is_elsewhere);
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
    case HangKind::kElsewhere: return "elsewhere";
    case HangKind::kNone: return "none";
  }
  return "unknown";
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
  const bool hangs = wait != nullptr && is_awaited(waits) &&
                     snapshot.taken_ns - *wait->waiter->waiting_ns >= patience.count();
  // A rank that has not come yet may be starting.
  const auto lost = lost_ranks(snapshot, hangs ? missing : std::set<int>());
  if (!lost.empty()) {
    return blame(HangKind::kDead, snapshot, waits, lost,
                 [&](int rank) { return describe_loss(snapshot.of_rank(rank)); });
  }
  const auto stopped = ranks_that(snapshot, [](const auto& rank) { return rank.stopped(); });
  if (!stopped.empty()) {
    return blame(HangKind::kStopped, snapshot, waits, stopped, [&](int rank) {
      return fmt::format("is stopped (state {})", snapshot.of_rank(rank).state);
    });
  }
  if (auto given_up = find_given_up(snapshot)) return *given_up;
  if (auto different = find_different_calls(snapshot)) return *different;
  return hangs ? judge_waits(snapshot, waits) : nothing_hangs(snapshot, wait);
}

}  // namespace hanji::shm
