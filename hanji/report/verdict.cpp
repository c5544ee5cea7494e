#include "hanji/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "hanji/base/units.h"
#include "hanji/plan/model_family.h"

namespace hanji::report {
namespace {

constexpr double kMinShare = 0.01;       // Of a step: smaller savings are no cause.
constexpr double kComputeBound = 0.9;    // Of a step.
constexpr double kUsualTransfer = 0.05;  // Of a step.
constexpr double kSlowProducts = 0.7;    // Of their measured rate: larger micro-batches may help.

Verdict not_measured(const std::string& why) { return {.sentence = "not measured: " + why}; }

std::string percent(double seconds, double step) {
  return fmt::format("{:.1f} %", 100 * seconds / step);
}

std::string saves(double seconds, double step) {
  return fmt::format("mending it saves {} of {} a step ({})", base::format_seconds(seconds),
                     base::format_seconds(step), percent(seconds, step));
}

/// The causes that save enough, the largest first; what a plan has chosen behind the others.
std::vector<Saving> worth_naming(const Savings& savings) {
  std::vector<Saving> causes;
  std::ranges::copy_if(savings.causes, std::back_inserter(causes), [&](const Saving& one) {
    return one.seconds && *one.seconds >= kMinShare * savings.step_seconds;
  });
  std::ranges::stable_sort(causes, std::greater(), [](const Saving& one) {
    return std::pair(!one.is_planned, *one.seconds);
  });
  return causes;
}

/// What the first cause is measured by. Ranks that work together move some bytes, however well they do.
double sum_of_losses(const std::vector<Saving>& causes, double step) {
  double sum = 0;
  for (const Saving& one : causes) {
    const bool is_usual = &one != &causes.front() && one.cause == Cause::kCommunication &&
                          *one.seconds < kUsualTransfer * step;
    sum += one.is_planned || is_usual ? 0 : *one.seconds;
  }
  return sum;
}

Verdict named(Verdict verdict, const Saving& saving) {
  verdict.cause = saving.cause;
  verdict.rank = saving.ranks.empty() ? -1 : saving.ranks[0];
  verdict.where = saving.where;
  verdict.saving_seconds = saving.seconds;
  verdict.sentence =
      saving.sentence + "; " +
      (saving.seconds ? saves(*saving.seconds, verdict.step_seconds)
                      : "what that saves was not measured, because no step ran with it");
  if (saving.is_planned) return verdict;
  for (const Saving& one : verdict.causes) {
    if (!one.is_planned) continue;
    verdict.sentence += fmt::format("; beside it, {} ({})", one.sentence,
                                    percent(*one.seconds, verdict.step_seconds));
  }
  return verdict;
}

/// Several causes, none of which is most of the loss.
Verdict several(Verdict verdict) {
  verdict.cause = Cause::kNothing;
  verdict.sentence = fmt::format("nothing stands out of what mending saves, {} of a step: ",
                                 percent(verdict.lost_seconds, verdict.step_seconds));
  for (size_t i = 0; i < verdict.causes.size() && i < 3; ++i) {
    const Saving& one = verdict.causes[i];
    if (one.is_planned) break;
    verdict.sentence += fmt::format("{}{} ({})", i == 0 ? "" : ", and ", one.sentence,
                                    percent(*one.seconds, verdict.step_seconds));
  }
  return verdict;
}

/// No cause saves enough.
Verdict without_cause(const RunRecords& run, const std::vector<LineParts>& lines, Verdict verdict) {
  const double compute =
      mean_over(lines, [](const LineParts& l) { return mean_of(l, &StepParts::compute); });
  if (compute < kComputeBound * verdict.step_seconds) {
    verdict.cause = Cause::kNothing;
    verdict.sentence = fmt::format(
        "nothing stands out: ranks wait {} of a step for each other, each time for another one",
        percent(mean_over(lines, [](const LineParts& l) { return mean_of(l, &StepParts::skew); }),
                verdict.step_seconds));
    return verdict;
  }
  verdict.cause = Cause::kCompute;
  verdict.sentence =
      fmt::format("computing takes {} of a step, and no rank is slower than the others",
                  percent(compute, verdict.step_seconds));
  const double rate = products_rate(run, verdict.step_seconds);
  if (rate > 0) {
    verdict.sentence +=
        fmt::format("; the model's products run at {:.0f} % of the rate measured here", 100 * rate);
  }
  return verdict;
}

/// A cause whose saving nobody has measured; nullptr: none, or products are fast enough without it.
const Saving* unmeasured(const RunRecords& run, const Savings& savings) {
  if (products_rate(run, savings.step_seconds) >= kSlowProducts) return nullptr;
  const auto found =
      std::ranges::find_if(savings.causes, [](const Saving& s) { return !s.seconds; });
  return found == savings.causes.end() ? nullptr : &*found;
}

}  // namespace

double products_rate(const RunRecords& run, double step_seconds) {
  const plan::Plan& plan = run.plan;
  const double targets = static_cast<double>(plan.config.train.global_batch) *
                         static_cast<double>(plan.model.targets_per_sample);
  const double flops = plan::facts_of_whole(plan.config, plan.model).flops_per_target() * targets;
  const double limit = plan.kernels.gemm_flops_per_second * plan.ranks;
  return limit > 0 && step_seconds > 0 ? flops / step_seconds / limit : 0;
}

Verdict judge_run(const RunRecords& run) {
  const std::vector<LineParts> lines = lines_of(run);
  if (lines.empty()) return not_measured(why_no_lines(run));
  if (steps_of(lines) < kMinSteps) {
    return not_measured(fmt::format("{} after the first, and less than {} say nothing",
                                    base::counted(steps_of(lines), "step"), kMinSteps));
  }
  const Savings savings = savings_of(run, lines);
  Verdict verdict{
      .step_seconds = mean_over(lines,
                                [](const LineParts& l) {
                                  return std::ranges::max(l.ranks, {}, &StepParts::seconds).seconds;
                                }),
      .lost_seconds = savings.all,
      .causes = worth_naming(savings)};
  if (!verdict.causes.empty()) {
    const Saving first = verdict.causes.front();
    const bool is_most =
        first.is_planned ||
        *first.seconds >= kMinShareOfLoss * sum_of_losses(verdict.causes, verdict.step_seconds);
    return is_most ? named(verdict, first) : several(verdict);
  }
  if (const Saving* one = unmeasured(run, savings)) return named(verdict, *one);
  return without_cause(run, lines, verdict);
}

}  // namespace hanji::report
