#include "hanji/launch/internal/supervisor.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hanji/base/symbols.h"
#include "hanji/base/tcp.h"
#include "hanji/base/units.h"
#include "hanji/launch/internal/restart_policy.h"
#include "hanji/shm/liveness.h"
#include "hanji/trace/recorder.h"

namespace hanji::launch {
namespace {

using namespace std::chrono_literals;

// Decided for every program of ours; see the table of codes.
constexpr int kPeerLostExit = 6;

/// True if the rank ended because another one had: then that one is the cause, not this one.
bool is_consequence(const RankExit& exit) {
  return exit.report.code() == Code::kPeerLost || exit.exit_code == kPeerLostExit;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string passed_on(int signal) { return signal_name(signal) + " passed on to all ranks"; }

}  // namespace

std::string describe(const RankExit& exit) {
  std::string text = exit.signal != 0 ? "was killed by " + signal_name(exit.signal)
                                      : fmt::format("exited with code {}", exit.exit_code);
  if (!exit.report.ok()) text += ": " + describe_status(exit.report);
  return text;
}

Supervisor::Supervisor(const LaunchOptions& options, std::shared_ptr<shm::Segment> segment,
                       std::vector<RankProcess> processes)
    : options_(options),
      segment_(std::move(segment)),
      processes_(std::move(processes)),
      start_ns_(base::now_ns()),
      orphans_(options.adopts_orphans),
      oom_kills_(base::oom_kills()),
      hostname_(base::host_name()) {
  outcome_.ranks.resize(processes_.size());
}

Outcome Supervisor::run() {
  for (const RankProcess& process : processes_) {
    const int rank = world_rank(process.rank());
    notify({RankEventKind::kStarted, rank, process.pid(),
            fmt::format("rank {} started on {} as process {}", rank, hostname_, process.pid())});
  }
  while (any_running() || awaits_hosts()) {
    wait();
    for (Echo& echo : echoes_) echo.pump();
    take_signals();
    take_deaths();
    reap_orphans();
    poll();
    notify_hosts();
    log_stacks();  // Looking names up takes its time: survivors have the verdict by now.
    on_deadline();
  }
  const auto patience = base::Deadline::after(5s);
  for (Echo& echo : echoes_) echo.finish(patience);
  if (outcome_.first_failed >= 0) {
    const RankExit& first = outcome_.ranks[outcome_.first_failed];
    notify({RankEventKind::kCause, world_rank(first.rank), first.pid,
            "cause: " + outcome_.cause + epilogue()});
  } else if (!outcome_.cause.empty()) {
    notify(RankEventKind::kCause, "cause: " + outcome_.cause);
  } else if (outcome_.exit_code != 0 && outcome_.stop_signal != 0) {
    outcome_.cause = passed_on(outcome_.stop_signal);  // no failure: events have told it
  }
  return std::move(outcome_);
}

bool Supervisor::any_running() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const RankProcess& process) { return process.running(); });
}

/// Sleeps until a rank dies or reports, a signal or output comes, or the deadline passes.
void Supervisor::wait() {
  std::vector<pollfd> polls;
  for (const RankProcess& process : processes_) {
    if (!process.running()) continue;
    polls.push_back({process.pidfd(), POLLIN, 0});
    polls.push_back({process.control(), POLLIN, 0});
  }
  if (relay_ != nullptr) polls.push_back({relay_->fd(), POLLIN, 0});
  if (link_ != nullptr) {
    for (const int descriptor : link_->descriptors()) polls.push_back({descriptor, POLLIN, 0});
  }
  for (const Echo& echo : echoes_) {
    polls.push_back({echo.read_end(), POLLIN, 0});
    polls.push_back({echo.waiting_for(), POLLOUT, 0});
  }
  const auto look = base::Deadline::after(Orphans::kInterval);  // their deaths wake nobody
  const bool is_sooner = orphans_.adopts() && look.remaining() < deadline_.remaining();
  ::poll(polls.data(), polls.size(), (is_sooner ? look : deadline_).poll_ms());
  for (RankProcess& process : processes_) process.take_reports();
}

void Supervisor::reap_orphans() const {
  orphans_.reap([this](pid_t pid) {
    return std::ranges::any_of(processes_, [&](const RankProcess& process) {
      return process.running() && process.pid() == pid;
    });
  });
}

/// Where ranks were when they crashed, or when they were asked.
void Supervisor::log_stacks() {
  for (RankProcess& process : processes_) {
    std::string stack = base::symbolise(process.take_stack());
    if (stack.empty()) continue;
    stack.pop_back();
    notify({RankEventKind::kStack, world_rank(process.rank()), process.pid(), std::move(stack)});
  }
}

/// Of the ranks that others waited for in vain: they hang somewhere else.
void Supervisor::ask_for_stacks() const {
  for (const RankProcess& process : processes_) {
    if (process.running() && !process.reported() && !shm::waits(*segment_, process.rank())) {
      process.signal(SIGURG);
    }
  }
}

void Supervisor::take_signals() {
  while (relay_ != nullptr) {
    const auto signal = relay_->take();
    if (!signal) return;
    take_signal(*signal);
  }
}

void Supervisor::take_signal(int signal) {
  const bool again = std::find(forwarded_.begin(), forwarded_.end(), signal) != forwarded_.end();
  if (!again) {
    forward(signal);
  } else if (signal == SIGINT) {
    kill_all("a second SIGINT came");
    if (link_ != nullptr) link_->send_verdict(kInterruptedExit, "a second SIGINT came");
  }
}

/// From other hosts, or from who started this launcher.
void Supervisor::poll() {
  while (link_ != nullptr) {
    const auto news = link_->take();
    if (!news) return;
    if (!news->refused.empty()) notify(RankEventKind::kRefused, news->refused);
    const bool known = std::find(forwarded_.begin(), forwarded_.end(), news->signal) !=
                       forwarded_.end();  // Our own comes back to us.
    if (news->signal != 0 && !known) forward(news->signal);
    if (news->verdict && !hosts_settled_) take_verdict(*news->verdict);
    if (news->all_ended && !hosts_settled_) {
      hosts_settled_ = true;
      if (outcome_.exit_code == 0) outcome_.exit_code = link_->exit_code();
    }
  }
}

/// What ends the run everywhere: our own first failure, or what came before it elsewhere.
void Supervisor::take_verdict(const Verdict& verdict) {
  hosts_settled_ = true;
  if (verdict.node == link_->node() && verdict.text == outcome_.cause) return;
  if (outcome_.first_failed >= 0) outcome_.ranks[outcome_.first_failed].secondary = true;
  provisional_ = false;
  outcome_.first_failed = -1;
  outcome_.exit_code = verdict.exit_code;
  outcome_.cause = verdict.text;
  segment_->abort(-1, Code::kPeerLost, verdict.text);
  if (phase_ == Phase::kRunning) enter(Phase::kVerdict, options_.verdict_time);
  notify(RankEventKind::kFailed, verdict.text);
}

/// A failure that may be another one's consequence waits until verdict_time is over, for the cause
/// may be on its way from another host.
void Supervisor::notify_hosts() {
  if (link_ == nullptr || told_hosts_ || hosts_settled_) return;
  const bool failed = !outcome_.cause.empty();
  const bool sure = !provisional_ || phase_ != Phase::kVerdict || deadline_.passed();
  if (failed ? !sure : any_running()) return;
  told_hosts_ = true;
  if (failed) {
    link_->send_verdict(outcome_.exit_code, outcome_.cause);
  } else {
    link_->send_ended(outcome_.exit_code);
  }
}

int Supervisor::world_rank(int rank) const {
  return rank + (link_ == nullptr ? 0 : link_->here().first_rank);
}

void Supervisor::forward(int signal) {
  forwarded_.push_back(signal);
  outcome_.stop_signal = signal;
  notify(RankEventKind::kForwarded, passed_on(signal));
  for (const RankProcess& process : processes_) process.signal(signal);
  if (link_ != nullptr) link_->send_signal(signal);
  if (phase_ == Phase::kRunning) enter(Phase::kStopping, options_.stop_grace);
}

void Supervisor::take_deaths() {
  std::vector<pollfd> polls;
  for (const RankProcess& process : processes_) {
    polls.push_back({process.running() ? process.pidfd() : -1, POLLIN, 0});
  }
  if (::poll(polls.data(), polls.size(), 0) <= 0) return;
  std::vector<RankExit> dead;
  for (size_t i = 0; i < polls.size(); ++i) {
    if (polls[i].revents != 0) dead.push_back(processes_[i].reap());
  }
  // Deaths seen at once: the cause goes first, ranks that died of it after.
  std::stable_partition(dead.begin(), dead.end(),
                        [](const RankExit& exit) { return !is_consequence(exit); });
  for (RankExit& exit : dead) take_death(std::move(exit));
}

void Supervisor::take_death(RankExit exit) {
  const auto recorder = trace::Recorder::attach(segment_->trace_memory(exit.rank));
  if (recorder.ok()) {
    exit.coordinates = recorder->coordinates();
    exit.step = recorder->step();
    exit.spans = recorder->open_spans();
  }
  explain_kill(exit);
  if (ended_as_asked(exit)) {
    if (outcome_.exit_code == 0) outcome_.exit_code = code_of(exit);
    notify({RankEventKind::kEnded, world_rank(exit.rank), exit.pid,
            where(exit) + " " + describe(exit)});
  } else if (exit.failed()) {
    record_failure(exit);
  } else {
    notify({RankEventKind::kEnded, world_rank(exit.rank), exit.pid, where(exit) + " ended"});
    if (segment_->is_expected(exit.rank) && any_running()) take_early_end(exit);
  }
  outcome_.ranks[exit.rank] = std::move(exit);
}

/// exit(0) in the middle of the job. A failure only if it becomes the end of somebody else: ranks
/// that all leave in this way, one a little before the other, are done.
void Supervisor::take_early_end(RankExit& exit) {
  if (early_leaver_ >= 0) return;
  early_leaver_ = exit.rank;
  segment_->abort(exit.rank, Code::kPeerLost, describe_failure(exit) + ", before it left the job");
}

void Supervisor::blame_early_leaver(RankExit& exit) {
  const RankExit& leaver = outcome_.ranks[early_leaver_];
  exit.secondary = true;
  outcome_.first_failed = leaver.rank;
  outcome_.exit_code = code_of(exit);
  outcome_.cause = describe_failure(leaver) + ", before it left the job";
  begin_to_end(leaver, outcome_.cause);
  notify({RankEventKind::kFailed, world_rank(leaver.rank), leaver.pid, outcome_.cause});
}

/// After a forwarded signal: with a code that says "saved and stopped", of the signal itself, or because
/// the signal has ended a peer.
bool Supervisor::ended_as_asked(const RankExit& exit) {
  if (forwarded_.empty() || !exit.failed()) return false;
  const int code = exit.exit_code;
  const bool by_signal = std::ranges::any_of(
      forwarded_, [&](int signal) { return code == 128 + signal || exit.signal == signal; });
  stop_ended_one_ |= by_signal;
  return by_signal || code == kRequeueExit || code == kInterruptedExit ||
         (stop_ended_one_ && is_consequence(exit));
}

/// A rank that died of another's death may be seen before that one, whose exit takes its time. So
/// the first failure stays provisional while it points to somebody else, until TERM is sent.
void Supervisor::record_failure(RankExit& exit) {
  const std::string text = describe_failure(exit);
  const bool none_before = outcome_.cause.empty();
  const bool explains = provisional_ && phase_ == Phase::kVerdict && !is_consequence(exit);
  if (none_before && is_consequence(exit) && early_leaver_ >= 0) blame_early_leaver(exit);
  exit.secondary |= !none_before && !explains;
  if (exit.secondary) {
    notify({RankEventKind::kSecondary, world_rank(exit.rank), exit.pid, describe_secondary(exit)});
    return;
  }
  if (explains) outcome_.ranks[outcome_.first_failed].secondary = true;
  provisional_ = is_consequence(exit);
  outcome_.first_failed = exit.rank;
  outcome_.exit_code = code_of(exit);
  outcome_.cause = text;
  begin_to_end(exit, text);
  if (exit.report.code() == Code::kTimeout) ask_for_stacks();
  notify({RankEventKind::kFailed, world_rank(exit.rank), exit.pid, text});
}

/// Peers see the death themselves; only the launcher knows its cause. Ranks that were asked to stop
/// may still meet to save, so a code of theirs is no reason to end the others. Where they may go on,
/// the word would come too late for some: it would end what the survivors have begun.
void Supervisor::begin_to_end(const RankExit& exit, const std::string& cause) {
  if (phase_ != Phase::kRunning || options_.on_death == OnDeath::kContinue) return;
  segment_->abort(exit.rank, Code::kPeerLost, cause);
  enter(Phase::kVerdict, options_.verdict_time);
}

/// What became of the others where they may go on.
std::string Supervisor::epilogue() const {
  if (options_.on_death == OnDeath::kStop) return "";
  const auto whole = std::count_if(outcome_.ranks.begin(), outcome_.ranks.end(),
                                   [](const RankExit& exit) { return !exit.failed(); });
  return fmt::format("; {} of {} ranks ended as they should", whole, outcome_.ranks.size());
}

/// SIGKILL from nobody here, while the kernel counted one more process that it killed for memory: in
/// a cgroup of this launcher, which its ranks share, or at least on this machine.
void Supervisor::explain_kill(RankExit& exit) const {
  if (exit.signal != SIGKILL || phase_ == Phase::kKilling || !exit.report.ok()) return;
  const std::string evidence = base::describe_oom_kills(oom_kills_, base::oom_kills());
  if (evidence.empty()) return;
  exit.report = base::out_of_memory(fmt::format(
      "the kernel's OOM killer ended a process {}; the rank's peak was {}; use a smaller model, "
      "micro-batch or number of ranks, or raise the limit",
      evidence, base::format_bytes(exit.peak_bytes)));
}

/// Who, how, and what it did last if it ever met the others. A verdict about calls names its own.
std::string Supervisor::describe_failure(const RankExit& exit) const {
  const Code code = exit.report.code();
  const bool names_call = code == Code::kTimeout || code == Code::kMismatch ||
                          code == Code::kPeerLost || code == Code::kCancelled;
  std::string text = where(exit) + " " + describe(exit);
  if (segment_->pid(exit.rank) != 0 && !names_call) {
    text += "; " + shm::describe_last_call(segment_, exit.rank);
  }
  return text;
}

/// What ended it is told once, as the cause.
std::string Supervisor::describe_secondary(const RankExit& exit) const {
  RankExit bare = exit;
  if (is_consequence(exit)) bare.report = {};
  return where(exit) + " " + describe(bare) + " (secondary)";
}

int Supervisor::code_of(const RankExit& exit) const {
  const bool killed_by_us = phase_ == Phase::kKilling && exit.signal == SIGKILL;
  if (killed_by_us && !forwarded_.empty()) {
    const int stop = forwarded_.back();
    return options_.saves_at_stop && exit.step < 0 ? stopped_exit(stop) : 128 + stop;
  }
  return exit.signal != 0 ? 128 + exit.signal : exit.exit_code;
}

void Supervisor::on_deadline() {
  if (!deadline_.passed()) return;
  if (!any_running()) {
    // Only other hosts are awaited.
    phase_ = Phase::kTerminating;
    deadline_ = base::Deadline::never();
    return;
  }
  switch (phase_) {
    case Phase::kVerdict:
      notify(RankEventKind::kTerminated,
             outcome_.first_failed < 0
                 ? std::string("SIGTERM sent to all ranks here, as another host failed")
                 : fmt::format("SIGTERM sent to the other ranks, as rank {} failed",
                               world_rank(outcome_.first_failed)));
      for (const RankProcess& process : processes_) process.signal(SIGTERM);
      enter(Phase::kTerminating, options_.kill_grace);
      break;
    case Phase::kTerminating:
      kill_all(fmt::format("they did not end within {} of SIGTERM",
                           base::format_seconds(options_.kill_grace.count() * 1e-3)));
      break;
    case Phase::kStopping:
      kill_all(fmt::format("they did not end within {} of {}",
                           base::format_seconds(options_.stop_grace.count() * 1e-3),
                           signal_name(forwarded_.back())));
      break;
    case Phase::kRunning:
    case Phase::kKilling: break;
  }
}

void Supervisor::kill_all(const std::string& why) {
  if (phase_ == Phase::kKilling) return;
  notify(RankEventKind::kKilled, "SIGKILL sent to the remaining ranks: " + why);
  phase_ = Phase::kKilling;
  deadline_ = base::Deadline::never();  // SIGKILL cannot be refused.
  for (const RankProcess& process : processes_) process.signal(SIGKILL);
}

void Supervisor::enter(Phase phase, std::chrono::milliseconds grace) {
  phase_ = phase;
  deadline_ = base::Deadline::after(grace);
}

void Supervisor::notify(const RankEvent& event) const {
  if (options_.on_event) options_.on_event(event);
}

void Supervisor::notify(RankEventKind kind, std::string text) const {
  notify({kind, -1, -1, std::move(text)});
}

/// "rank 1 (host vm, process 4711, after 3.2 s, dp=1,tp=0, step 57, in forward)"; the ring outlives
/// its rank.
std::string Supervisor::where(const RankExit& exit) const {
  const double seconds = static_cast<double>(base::now_ns() - start_ns_) * 1e-9;
  std::string text = fmt::format("rank {} ({}host {}, process {}, after {}", world_rank(exit.rank),
                                 link_ == nullptr ? "" : fmt::format("node {}, ", link_->node()),
                                 hostname_, exit.pid, base::format_seconds(seconds));
  if (!exit.coordinates.empty()) text += ", " + exit.coordinates;
  if (exit.step > 0) text += fmt::format(", step {}", exit.step);
  if (!exit.spans.empty()) text += ", in " + exit.spans;
  return text + ")";
}

}  // namespace hanji::launch
