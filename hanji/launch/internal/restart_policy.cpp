#include "hanji/launch/internal/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "hanji/base/units.h"

namespace hanji::launch {
namespace {

bool was_stopped(const Outcome& outcome) {
  return outcome.stop_signal != 0 || outcome.exit_code == kRequeueExit ||
         outcome.exit_code == kInterruptedExit;
}

std::string at_step(int64_t step) {
  return step < 0 ? "before its first step" : fmt::format("at step {}", step);
}

}  // namespace

bool RestartPolicy::is_same(const Failure& failure, std::chrono::nanoseconds lived) const {
  if (same_ == 0 || !(failure == last_)) return false;
  return failure.step >= 0 || lived < options_.healthy_time;
}

RestartDecision RestartPolicy::after(const Outcome& outcome, std::chrono::nanoseconds lived) {
  if (outcome.first_failed < 0 || was_stopped(outcome) || options_.max_restarts == 0) return {};
  const RankExit& first = outcome.ranks[outcome.first_failed];
  const Failure failure{first.exit_code, first.signal, first.report.code(), first.step};
  same_ = is_same(failure, lived) ? same_ + 1 : 1;
  last_ = failure;
  if (same_ >= options_.max_same_failures) {
    return {.text = fmt::format("not restarted: the same failure came {} times in a row {}: {}",
                                same_, at_step(failure.step), outcome.cause)};
  }
  if (restarts_ == options_.max_restarts) {
    return {.text = fmt::format("not restarted: {} restarts were allowed and made; the last "
                                "failure: {}",
                                restarts_, outcome.cause)};
  }
  ++restarts_;
  const auto doubled = options_.pause * (int64_t{1} << std::min(same_ - 1, 30));
  const auto pause = std::min<std::chrono::milliseconds>(doubled, options_.max_pause);
  return {.restart = true,
          .pause = pause,
          .text = fmt::format("restart {} of {} in {}, as {}", restarts_, options_.max_restarts,
                              base::format_seconds(static_cast<double>(pause.count()) * 1e-3),
                              outcome.cause)};
}

}  // namespace hanji::launch
