#include "hanji/test/strike_in_phase.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/base/random.h"
#include "hanji/launch/find_job.h"
#include "hanji/shm/snapshot.h"

namespace hanji::test {
namespace {

using namespace std::chrono_literals;

bool in_call(const shm::Snapshot& snapshot, int rank) {
  return std::ranges::any_of(snapshot.groups, [&](const shm::GroupSnapshot& group) {
    return std::ranges::any_of(group.members, [&](const shm::MemberSnapshot& member) {
      return member.rank == rank && member.inside();
    });
  });
}

bool stands_in(const shm::Snapshot& snapshot, int rank, const std::string& phase) {
  const std::string& spans = snapshot.ranks[static_cast<size_t>(rank)].spans;
  const bool calls = in_call(snapshot, rank);
  if (phase == "collective") return calls;
  if (phase == "save") return spans.find("checkpoint write") != std::string::npos;
  return !calls && spans.starts_with(phase);
}

Result<shm::Snapshot> look(const launch::FoundJob& job) {
  return shm::take_snapshot(job.segment, /*max_calls=*/0);
}

Result<launch::FoundJob> await_job(const std::filesystem::path& folder) {
  const auto deadline = base::Deadline::after(60s);
  while (true) {
    auto job = launch::find_job(folder.string());
    if (job.ok() || deadline.passed()) return job;
    std::this_thread::sleep_for(5ms);
  }
}

/// Stopped, all its threads, where it stands.
Result<shm::Snapshot> stop(const launch::FoundJob& job, int rank, pid_t pid) {
  ::kill(pid, SIGSTOP);
  const auto deadline = base::Deadline::after(10s);
  while (!deadline.passed()) {
    HANJI_ASSIGN_OR_RETURN(shm::Snapshot snapshot, look(job));
    if (snapshot.ranks[static_cast<size_t>(rank)].state == 'T') return snapshot;
    std::this_thread::sleep_for(50us);
  }
  return base::timeout(fmt::format("process {} does not stop", pid));
}

struct Met {
  shm::RankSnapshot rank;
  int64_t stopped_ns = 0;
};

Result<Met> meet(const PhaseStrike& strike, const launch::FoundJob& job) {
  const auto deadline = base::Deadline::after(60s);
  std::map<std::string, int> seen;
  for (uint64_t attempt = 0; !deadline.passed(); ++attempt) {
    HANJI_ASSIGN_OR_RETURN(const shm::Snapshot before, look(job));
    const shm::RankSnapshot& rank = before.ranks.at(static_cast<size_t>(strike.rank));
    if (rank.presence == shm::RankPresence::kDied || rank.presence == shm::RankPresence::kLeft) {
      return base::invalid_argument(fmt::format("rank {} has ended already", strike.rank));
    }
    // A hint, for it runs on; where it stands is seen when it is stopped.
    if (rank.step < 1 || !stands_in(before, strike.rank, strike.phase)) {
      std::this_thread::sleep_for(std::chrono::microseconds(20 + base::mix(attempt, 1) % 100));
      continue;
    }
    const int64_t now = base::now_ns();
    HANJI_ASSIGN_OR_RETURN(const shm::Snapshot stopped, stop(job, strike.rank, rank.pid));
    if (stands_in(stopped, strike.rank, strike.phase)) {
      return Met{stopped.ranks[static_cast<size_t>(strike.rank)], now};
    }
    ++seen[stopped.ranks[static_cast<size_t>(strike.rank)].spans +
           (in_call(stopped, strike.rank) ? " (in a call)" : "")];
    ::kill(rank.pid, SIGCONT);
  }
  std::string text = fmt::format("rank {} was never met in {}", strike.rank, strike.phase);
  for (const auto& [where, count] : seen) text += fmt::format(", {} times in {}", count, where);
  return base::timeout(text);
}

std::string log_of(const PhaseStrike& strike, int rank) {
  auto text = base::read_file(strike.folder / "logs" / fmt::format("rank.{}", rank));
  return text.ok() ? *std::move(text) : std::string();
}

}  // namespace

Result<std::string> strike_in_phase(const PhaseStrike& strike) {
  HANJI_ASSIGN_OR_RETURN(const launch::FoundJob job, await_job(strike.folder));
  HANJI_ASSIGN_OR_RETURN(const shm::Snapshot snapshot, look(job));
  const int ranks = static_cast<int>(snapshot.ranks.size());
  if (strike.rank >= ranks) return base::invalid_argument("the job has fewer ranks");
  std::vector<size_t> known;  // of the logs, so that an earlier death is not taken for this one
  for (int rank = 0; rank < ranks; ++rank) known.push_back(log_of(strike, rank).size());
  HANJI_ASSIGN_OR_RETURN(const Met met, meet(strike, job));
  const bool kills = strike.signal == SIGKILL;
  const int64_t struck_ns = kills ? base::now_ns() : met.stopped_ns;
  if (kills) ::kill(met.rank.pid, SIGKILL);
  const std::string name = fmt::format("rank {} (", strike.rank);
  base::Json seconds = base::Json::array();
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == strike.rank) continue;
    const auto deadline = base::Deadline::after(60s);
    while (log_of(strike, rank).find(name, known[static_cast<size_t>(rank)]) == std::string::npos) {
      if (deadline.passed()) {
        return base::timeout(fmt::format("rank {} does not name rank {}", rank, strike.rank));
      }
      std::this_thread::sleep_for(200us);
    }
    seconds.push_back(static_cast<double>(base::now_ns() - struck_ns) * 1e-9);
  }
  const base::Json told = {
      {"pid", met.rank.pid}, {"step", met.rank.step}, {"in", met.rank.spans}, {"seconds", seconds}};
  return base::dump(told);
}

}  // namespace hanji::test
