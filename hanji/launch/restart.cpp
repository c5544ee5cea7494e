#include "hanji/launch/restart.h"

#include <fmt/format.h>
#include <poll.h>

#include <optional>

#include "hanji/base/clock.h"
#include "hanji/launch/internal/launch_once.h"
#include "hanji/launch/internal/restart_policy.h"

namespace hanji::launch {
namespace {

/// The signal that ended the pause, or 0 when it is over.
int pause_for(std::chrono::milliseconds time, SignalRelay* relay) {
  const auto deadline = base::Deadline::after(time);
  while (!deadline.passed()) {
    pollfd poll{relay == nullptr ? -1 : relay->fd(), POLLIN, 0};
    ::poll(&poll, 1, deadline.poll_ms());
    const auto signal = relay == nullptr ? std::nullopt : relay->take();
    if (signal) return *signal;
  }
  return 0;
}

void notify(const LaunchOptions& options, RankEventKind kind, std::string text) {
  if (options.on_event) options.on_event({kind, -1, -1, std::move(text)});
}

Result<Outcome> run_attempts(LaunchOptions options, const RestartOptions& restarts,
                             SignalRelay* relay) {
  RestartPolicy policy(restarts);
  Outcome outcome;
  for (int attempt = 0;; ++attempt) {
    options.restart_count = attempt;
    if (restarts.prepare) {
      HANJI_RETURN_IF_ERROR(restarts.prepare(
          {.restarts = attempt, .previous = attempt ? &outcome : nullptr}, options));
    }
    const int64_t start_ns = base::now_ns();
    HANJI_ASSIGN_OR_RETURN(outcome, launch_once(options, relay));
    const auto lived = std::chrono::nanoseconds(base::now_ns() - start_ns);
    const RestartDecision decision = policy.after(outcome, lived);
    if (!decision.restart) {
      if (!decision.text.empty()) notify(options, RankEventKind::kGaveUp, decision.text);
      return outcome;
    }
    notify(options, RankEventKind::kRestarted, decision.text);
    outcome.stop_signal = pause_for(decision.pause, relay);
    if (outcome.stop_signal != 0) {
      if (options.saves_at_stop) outcome.exit_code = stopped_exit(outcome.stop_signal);
      notify(options, RankEventKind::kGaveUp,
             fmt::format("not restarted: signal {} came; {}", outcome.stop_signal, outcome.cause));
      return outcome;
    }
  }
}

}  // namespace

Result<Outcome> launch_with_restarts(LaunchOptions options, const RestartOptions& restarts) {
  if (restarts.max_restarts < 0) {
    return base::invalid_argument(fmt::format(
        "max restarts is {}: give 0 for none, or how often all ranks may be started again",
        restarts.max_restarts));
  }
  if (restarts.max_restarts > 0 && options.on_death == OnDeath::kContinue) {
    return base::invalid_argument(
        "--max-restarts starts all ranks again after a death, --on-death continue lets the others "
        "go on: choose one of them");
  }
  if (restarts.max_restarts > 0 && options.hosts) {
    return base::unsupported(
        "ranks of several hosts are not started again by their launchers: leave --max-restarts "
        "out, "
        "and start `hanji run` on all hosts again");
  }
  if (options.signals == Signals::kLeave) {
    return run_attempts(std::move(options), restarts, nullptr);
  }
  HANJI_ASSIGN_OR_RETURN(SignalRelay relay, SignalRelay::install());
  return run_attempts(std::move(options), restarts, &relay);
}

}  // namespace hanji::launch
