#include "hanji/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "hanji/base/units.h"

namespace hanji::report {
namespace {

constexpr double kChance = 1e-3;       // Of naming a rank where none is slow.
constexpr double kMinShare = 0.02;     // Of a step: smaller losses are no cause.
constexpr double kBusy = 0.9;          // Of computing: a rank with less CPU time was put aside.
constexpr double kComputeBound = 0.9;  // Of a step.

/// Seconds of all ranks in one line of the accounts, per step.
struct Line {
  std::vector<StepParts> ranks;
  int64_t steps = 0;
};

std::vector<Line> lines_of(const RunRecords& run) {
  std::vector<Line> lines;
  if (std::ssize(run.ranks) != run.plan.ranks) return {};
  const std::vector<StepAccount>& first = run.ranks.front().accounts;
  for (const RankSteps& rank : run.ranks) {
    if (rank.accounts.size() != first.size()) return {};
  }
  for (size_t i = 1; i < first.size(); ++i) {  // the first warms up
    Line line{.steps = first[i].steps};
    for (const RankSteps& rank : run.ranks) {
      const StepAccount& one = rank.accounts[i];
      const auto compute = compute_seconds(one);
      if (!compute || one.step != first[i].step || one.steps != line.steps) return {};
      const auto steps = static_cast<double>(one.steps);
      line.ranks.push_back({.rank = rank.rank,
                            .seconds = one.seconds / steps,
                            .compute = *compute / steps,
                            .data = one.data / steps,
                            .exposed_transfer = *one.exposed_transfer / steps,
                            .skew = *one.skew / steps,
                            .cpu = one.cpu / steps});
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

int64_t steps_of(const std::vector<Line>& lines) {
  int64_t steps = 0;
  for (const Line& line : lines) steps += line.steps;
  return steps;
}

/// The mean over steps of what `of` says of a line.
template <class Of>
double mean_over(const std::vector<Line>& lines, const Of& of) {
  double sum = 0;
  for (const Line& line : lines) sum += static_cast<double>(line.steps) * of(line);
  return sum / static_cast<double>(steps_of(lines));
}

double mean_of(const Line& line, double StepParts::*part) {
  double sum = 0;
  for (const StepParts& rank : line.ranks) sum += rank.*part;
  return sum / static_cast<double>(line.ranks.size());
}

double largest_of(const Line& line, double StepParts::*part) {
  return (*std::ranges::max_element(line.ranks, {}, part)).*part;
}

/// How likely it is that one of `ranks` that are alike is the last in at least `count` of `lines`.
double chance_of(int64_t count, int64_t lines, int64_t ranks) {
  const double p = 1 / static_cast<double>(ranks);
  double tail = 0;
  for (int64_t i = count; i <= lines; ++i) {
    const auto n = static_cast<double>(lines), k = static_cast<double>(i);
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) +
                     k * std::log(p) + (n - k) * std::log1p(-p));
  }
  return std::min(1.0, tail * static_cast<double>(ranks));
}

/// The rank that is the last more often than chance has it, and what it is behind the next one.
struct SlowRank {
  size_t index = 0;
  double behind = 0;
};

std::optional<SlowRank> slow_rank(const std::vector<Line>& lines, double StepParts::*part) {
  const size_t ranks = lines.front().ranks.size();
  if (ranks < 2) return std::nullopt;
  std::vector<int64_t> last(ranks);
  for (const Line& line : lines) {
    ++last[std::ranges::max_element(line.ranks, {}, part) - line.ranks.begin()];
  }
  const size_t index = std::ranges::max_element(last) - last.begin();
  if (chance_of(last[index], std::ssize(lines), static_cast<int64_t>(ranks)) > kChance) {
    return std::nullopt;
  }
  const double behind = mean_over(lines, [&](const Line& line) {
    double next = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < ranks; ++i) {
      if (i != index) next = std::max(next, line.ranks[i].*part);
    }
    return std::max(0.0, line.ranks[index].*part - next);
  });
  return SlowRank{index, behind};
}

std::string percent(double seconds, double step) {
  return fmt::format("{:.1f} %", 100 * seconds / step);
}

/// The axis on which ranks spend most on moving bytes; empty: none told.
std::string busiest_axis(const RunRecords& run) {
  std::vector<AxisAccount> sums;
  for (const RankSteps& rank : run.ranks) {
    for (const StepAccount& account : rank.accounts) {
      for (const AxisAccount& one : account.axes) {
        if (!one.exposed_transfer) continue;
        auto found = std::ranges::find(sums, one.axis, &AxisAccount::axis);
        if (found == sums.end()) {
          sums.push_back({.axis = one.axis, .exposed_transfer = 0.0});
          found = sums.end() - 1;
        }
        *found->exposed_transfer += *one.exposed_transfer;
      }
    }
  }
  const auto most = std::ranges::max_element(sums, {}, &AxisAccount::exposed_transfer);
  return most == sums.end() ? "" : most->axis;
}

/// The routine in which the others wait longest for `rank`; empty: none was recorded.
std::string awaited_in(const RunRecords& run, int rank) {
  std::vector<WaitAccount> sums;
  for (const RankSteps& other : run.ranks) {
    for (const StepAccount& account : other.accounts) {
      for (const WaitAccount& one : account.waits) {
        if (one.rank != rank || one.routine.empty()) continue;
        auto found = std::ranges::find(sums, one.routine, &WaitAccount::routine);
        if (found == sums.end()) {
          sums.push_back({one.routine, rank, 0});
          found = sums.end() - 1;
        }
        found->seconds += one.seconds;
      }
    }
  }
  const auto most = std::ranges::max_element(sums, {}, &WaitAccount::seconds);
  return most == sums.end() ? "" : most->routine;
}

Verdict not_measured(const std::string& why) { return {.sentence = "not measured: " + why}; }

std::string why_no_lines(const RunRecords& run) {
  if (run.ranks.empty()) {
    return fmt::format("{} has no records of steps; runs of this build write them",
                       (run.folder / kAccountFolder).string());
  }
  if (std::ssize(run.ranks) != run.plan.ranks) {
    return fmt::format("records of {} of {} lie here; copy those of the other hosts into {}",
                       run.ranks.size(), base::counted(run.plan.ranks, "rank"),
                       (run.folder / kAccountFolder).string());
  }
  for (const RankSteps& rank : run.ranks) {
    for (const StepAccount& one : rank.accounts) {
      if (!compute_seconds(one)) {
        return fmt::format("the engine {} does not tell moving bytes from waiting for a rank",
                           plan::name_of(run.plan.config.comm.engine));
      }
    }
  }
  return "records of the ranks have different steps";
}

bool has_stages(const plan::Plan& plan) { return plan.mesh.degree("pp") > 1; }

/// What mending each cause saves of a step.
struct Losses {
  double step = 0;
  double data = 0, transfer = 0, stolen = 0, imbalance = 0, pipeline = 0;
  double all() const { return data + transfer + stolen + imbalance + pipeline; }
};

Losses losses_of(const std::vector<Line>& lines, bool has_stages) {
  Losses losses;
  losses.data = mean_over(lines, [](const Line& l) { return largest_of(l, &StepParts::data); });
  losses.transfer =
      mean_over(lines, [](const Line& l) { return mean_of(l, &StepParts::exposed_transfer); });
  losses.imbalance = mean_over(lines, [](const Line& l) {
    return largest_of(l, &StepParts::compute) - mean_of(l, &StepParts::compute);
  });
  losses.stolen = mean_over(lines, [](const Line& l) {
    double most = 0;
    for (const StepParts& one : l.ranks) {
      if (one.cpu < kBusy * one.compute) most = std::max(most, one.compute - one.cpu);
    }
    return most;
  });
  // What others took of a rank is no slowness of its own.
  losses.imbalance = std::max(0.0, losses.imbalance - losses.stolen);
  losses.step = mean_over(lines, [](const Line& l) { return largest_of(l, &StepParts::seconds); });
  if (!has_stages) return losses;
  // Stages wait for each other even where all are alike.
  const double compute =
      mean_over(lines, [](const Line& l) { return mean_of(l, &StepParts::compute); });
  losses.pipeline = std::max(0.0, losses.step - compute - losses.all());
  losses.pipeline += losses.imbalance;
  losses.imbalance = 0;
  return losses;
}

/// A verdict without a cause yet.
Verdict measured(const Losses& losses) {
  return {.cause = Cause::kNothing, .step_seconds = losses.step, .lost_seconds = losses.all()};
}

std::string saves(const Verdict& verdict) {
  return fmt::format("mending it saves {} of {} a step ({})",
                     base::format_seconds(verdict.saving_seconds),
                     base::format_seconds(verdict.step_seconds),
                     percent(verdict.saving_seconds, verdict.step_seconds));
}

std::string of_mesh(const RunRecords& run, int rank) {
  std::string text = fmt::format("rank {}", rank);
  std::string coordinates;
  for (const layout::Axis& axis : run.plan.mesh.axes()) {
    if (axis.degree == 1) continue;
    coordinates += fmt::format("{}{}={}", coordinates.empty() ? "" : ",", axis.name,
                               run.plan.mesh.coordinate(rank, axis.name));
  }
  return coordinates.empty() ? text : text + " (" + coordinates + ")";
}

Verdict slow(const RunRecords& run, const std::vector<Line>& lines, Verdict verdict) {
  const auto found = slow_rank(lines, &StepParts::compute);
  if (!found) {
    verdict.sentence = fmt::format(
        "nothing stands out: ranks wait {} of a step for each other, each time for another one",
        percent(verdict.lost_seconds, verdict.step_seconds));
    return verdict;
  }
  verdict.cause = Cause::kSlowRank;
  verdict.rank = lines.front().ranks[found->index].rank;
  verdict.where = awaited_in(run, verdict.rank);
  verdict.saving_seconds = found->behind;
  const auto own = plan::share_of(run.plan, verdict.rank).samples.size();
  int64_t least = own;
  for (const plan::DataShare& share : run.plan.shares)
    least = std::min(least, share.samples.size());
  verdict.sentence = fmt::format(
      "{} computes longest{}{}; {}", of_mesh(run, verdict.rank),
      own > least ? fmt::format(", with {} of a step where others have {}",
                                base::counted(own, "sample"), least)
                  : "",
      verdict.where.empty() ? "" : fmt::format(": the others wait for it in {}", verdict.where),
      saves(verdict));
  return verdict;
}

Verdict waiting_for_data(const RunRecords& run, const std::vector<Line>& lines,
                         const Losses& losses, Verdict verdict) {
  verdict.cause = Cause::kData;
  verdict.saving_seconds = losses.data;
  const auto found = slow_rank(lines, &StepParts::data);
  if (found) verdict.rank = lines.front().ranks[found->index].rank;
  const plan::DataConfig& data = run.plan.config.data;
  verdict.sentence =
      fmt::format("{} for samples; {}; {}",
                  found ? of_mesh(run, verdict.rank) + " waits" : "ranks wait", saves(verdict),
                  data.workers == 0 ? "set data.workers, so that threads read ahead"
                                    : fmt::format("raise data.workers, which is {}", data.workers));
  return verdict;
}

Verdict moving_bytes(const RunRecords& run, const Losses& losses, Verdict verdict) {
  verdict.cause = Cause::kCommunication;
  verdict.saving_seconds = losses.transfer;
  verdict.where = busiest_axis(run);
  verdict.sentence =
      fmt::format("bytes move{} while nothing is computed; {}",
                  verdict.where.empty() ? "" : " on the axis " + verdict.where, saves(verdict));
  return verdict;
}

Verdict stolen(const RunRecords& run, const std::vector<Line>& lines, const Losses& losses,
               Verdict verdict) {
  verdict.cause = Cause::kStolenTime;
  verdict.saving_seconds = losses.stolen;
  const auto behind = [&](size_t i) {
    return mean_over(lines, [i](const Line& l) { return l.ranks[i].compute - l.ranks[i].cpu; });
  };
  size_t worst = 0;
  for (size_t i = 1; i < lines.front().ranks.size(); ++i) {
    if (behind(i) > behind(worst)) worst = i;
  }
  verdict.rank = lines.front().ranks[worst].rank;
  verdict.sentence = fmt::format(
      "{} had {} less CPU time a step than it computed: other processes, or more ranks than cores, "
      "took it; {}",
      of_mesh(run, verdict.rank), base::format_seconds(behind(worst)), saves(verdict));
  return verdict;
}

Verdict waiting_for_stages(const RunRecords& run, const std::vector<Line>& lines,
                           const Losses& losses, Verdict verdict) {
  verdict.cause = Cause::kUnevenStages;
  verdict.saving_seconds = losses.pipeline;
  const auto found = slow_rank(lines, &StepParts::compute);
  if (found) verdict.rank = lines.front().ranks[found->index].rank;
  verdict.where = "pp";
  verdict.sentence = fmt::format(
      "stages wait for each other{}; {}: more micro-batches, another parallel.schedule or stages "
      "of "
      "one length",
      found ? fmt::format(", longest for {}", of_mesh(run, verdict.rank)) : "", saves(verdict));
  return verdict;
}

Verdict compute_bound(const RunRecords& run, double compute, Verdict verdict) {
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

}  // namespace

std::string_view name_of(Cause cause) {
  constexpr std::array<std::string_view, 8> kNames = {"not_measured",  "compute",       "nothing",
                                                      "data",          "communication", "slow_rank",
                                                      "uneven_stages", "stolen_time"};
  return kNames[static_cast<size_t>(cause)];
}

double products_rate(const RunRecords& run, double step_seconds) {
  const plan::Plan& plan = run.plan;
  const double targets = static_cast<double>(plan.config.train.global_batch) *
                         static_cast<double>(plan.model.targets_per_sample);
  const double flops = plan::facts_of_whole(plan.config, plan.model).flops_per_target() * targets;
  const double limit = plan.kernels.gemm_flops_per_second * plan.ranks;
  return limit > 0 && step_seconds > 0 ? flops / step_seconds / limit : 0;
}

std::vector<StepParts> mean_parts(const RunRecords& run) {
  const std::vector<Line> lines = lines_of(run);
  std::vector<StepParts> parts;
  if (lines.empty()) return parts;
  for (size_t i = 0; i < lines.front().ranks.size(); ++i) {
    StepParts mean{.rank = lines.front().ranks[i].rank};
    for (double StepParts::*part :
         {&StepParts::seconds, &StepParts::compute, &StepParts::data, &StepParts::exposed_transfer,
          &StepParts::skew, &StepParts::cpu}) {
      mean.*part = mean_over(lines, [&](const Line& line) { return line.ranks[i].*part; });
    }
    parts.push_back(mean);
  }
  return parts;
}

Verdict judge_run(const RunRecords& run) {
  const std::vector<Line> lines = lines_of(run);
  if (lines.empty()) return not_measured(why_no_lines(run));
  if (steps_of(lines) < kMinSteps) {
    return not_measured(fmt::format("{} after the first, and less than {} say nothing",
                                    base::counted(steps_of(lines), "step"), kMinSteps));
  }
  const Losses losses = losses_of(lines, has_stages(run.plan));
  const Verdict verdict = measured(losses);
  const double compute =
      mean_over(lines, [](const Line& l) { return mean_of(l, &StepParts::compute); });
  const auto is_cause = [&](double loss) {
    return loss >= kMinShareOfLoss * losses.all() && loss >= kMinShare * losses.step;
  };
  if (is_cause(losses.stolen)) return stolen(run, lines, losses, verdict);
  if (is_cause(losses.data)) return waiting_for_data(run, lines, losses, verdict);
  if (is_cause(losses.transfer)) return moving_bytes(run, losses, verdict);
  if (is_cause(losses.pipeline)) return waiting_for_stages(run, lines, losses, verdict);
  if (is_cause(losses.imbalance)) return slow(run, lines, verdict);
  if (compute >= kComputeBound * losses.step) return compute_bound(run, compute, verdict);
  Verdict none = verdict;
  none.sentence = fmt::format(
      "nothing stands out: {} of a step are lost, to bytes that move {}, waiting for ranks {}, "
      "samples {}",
      percent(losses.all(), losses.step), percent(losses.transfer, losses.step),
      percent(losses.imbalance + losses.pipeline + losses.stolen, losses.step),
      percent(losses.data, losses.step));
  return none;
}

}  // namespace hanji::report
