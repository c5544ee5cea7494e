#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "hanji/base/clock.h"
#include "hanji/base/memory_headroom.h"
#include "hanji/launch/internal/echo.h"
#include "hanji/launch/internal/host_link.h"
#include "hanji/launch/internal/orphans.h"
#include "hanji/launch/internal/rank_process.h"
#include "hanji/launch/internal/signal_relay.h"

namespace hanji::launch {

/// Watches started ranks until all have ended:
///
///   running --rank fails--> verdict --verdict_time--> terminating --kill_grace--> killing
///      \------a stop signal-------> stopping --stop_grace, or a second INT-------> killing
///
/// Of several hosts, each one's supervisor tells the others the first failure and stays until all
/// have ended or one verdict holds for all.
class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, std::shared_ptr<shm::Segment> segment,
             std::vector<RankProcess> processes);

  /// All optional.
  void watch(SignalRelay* relay) { relay_ = relay; }
  void watch(HostLink* link) { link_ = link; }
  void watch(std::vector<Echo> echoes) { echoes_ = std::move(echoes); }

  Outcome run();

 private:
  enum class Phase { kRunning, kVerdict, kTerminating, kStopping, kKilling };

  bool any_running() const;
  void wait();
  bool awaits_hosts() const { return link_ != nullptr && !hosts_settled_; }
  void take_signals();
  void take_signal(int signal);
  void poll();
  void take_verdict(const Verdict& verdict);
  void notify_hosts();
  int world_rank(int rank) const;
  void take_deaths();
  void reap_orphans() const;
  void log_stacks();
  void ask_for_stacks() const;
  void take_death(RankExit exit);
  void record_failure(RankExit& exit);
  bool ended_as_asked(const RankExit& exit);
  void blame_early_leaver(RankExit& exit);
  void begin_to_end(const RankExit& exit, const std::string& cause);
  std::string epilogue() const;
  void take_early_end(RankExit& exit);
  void explain_kill(RankExit& exit) const;
  std::string describe_failure(const RankExit& exit) const;
  std::string describe_secondary(const RankExit& exit) const;
  int code_of(const RankExit& exit) const;
  void on_deadline();
  void forward(int signal);
  void kill_all(const std::string& why);
  void enter(Phase phase, std::chrono::milliseconds grace);
  void notify(const RankEvent& event) const;
  void notify(RankEventKind kind, std::string text) const;
  std::string where(const RankExit& exit) const;

  const LaunchOptions& options_;
  std::shared_ptr<shm::Segment> segment_;
  std::vector<RankProcess> processes_;
  SignalRelay* relay_ = nullptr;
  HostLink* link_ = nullptr;
  std::vector<Echo> echoes_;
  Phase phase_ = Phase::kRunning;
  base::Deadline deadline_ = base::Deadline::never();
  int64_t start_ns_;
  Orphans orphans_;
  base::OomKills oom_kills_;  ///< Before the ranks ran.
  std::string hostname_;
  std::vector<int> forwarded_;
  bool stop_ended_one_ = false;  ///< A rank that did not catch the forwarded signal.
  int early_leaver_ = -1;        ///< Ended with code 0 while others were in the middle of the job.
  bool provisional_ = false;     ///< The first failure told that another rank was its cause.
  bool told_hosts_ = false;      ///< How it went here.
  bool hosts_settled_ = false;   ///< All have ended, or a verdict holds for all.
  Outcome outcome_;
};

}  // namespace hanji::launch
