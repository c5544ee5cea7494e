#include "hanji/report/replay.h"

#include <algorithm>
#include <map>

#include "hanji/plan/pipeline_plan.h"

namespace hanji::report {
namespace {

constexpr size_t kMaxReplayed = 32;

/// Ranks that differ in their place along "pp" alone, in its order.
std::vector<std::vector<size_t>> pipelines_of(const plan::Plan& plan) {
  std::map<std::vector<int>, std::vector<size_t>> by_place;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    std::vector<int> place;
    for (const layout::Axis& axis : plan.mesh.axes()) {
      if (axis.name != "pp") place.push_back(plan.mesh.coordinate(rank, axis.name));
    }
    by_place[place].push_back(rank);
  }
  std::vector<std::vector<size_t>> pipelines;
  for (auto& [place, ranks] : by_place) {
    std::ranges::sort(
        ranks, {}, [&](size_t rank) { return plan.mesh.coordinate(static_cast<int>(rank), "pp"); });
    pipelines.push_back(std::move(ranks));
  }
  return pipelines;
}

std::vector<LineParts> some_of(const std::vector<LineParts>& lines) {
  if (lines.size() <= kMaxReplayed) return lines;
  std::vector<LineParts> some;
  for (size_t i = 0; i < kMaxReplayed; ++i) some.push_back(lines[i * lines.size() / kMaxReplayed]);
  return some;
}

double first_compute(const schedule::ActionList& actions,
                     const std::vector<schedule::ActionSpan>& spans) {
  const auto first = std::ranges::find_if(
      actions, [](const schedule::Action& one) { return schedule::is_compute(one.kind); });
  return first == actions.end() ? 0 : spans[first - actions.begin()].begin;
}

}  // namespace

Replay::Replay(const plan::Plan& plan, const std::vector<LineParts>& lines)
    : plan_(plan), lines_(some_of(lines)), work_(planned_work(plan)) {
  if (plan.mesh.degree("pp") == 1) return;
  stages_ = plan::stage_times(plan.model, plan.times, plan::stages_of(plan), 1);
  for (const plan::DataShare& share : plan.shares) {
    schedules_.push_back(plan::schedule_of(plan.config, share.num_micro_batches).or_throw());
  }
  pipelines_ = pipelines_of(plan);
  place_of_stage_ = plan::ranks_of_stages(plan);
  planned_.assign(plan.mesh.degree("pp"), 0);
  for (size_t s = 0; s < stages_.size(); ++s) planned_[place_of_stage_[s]] += stages_[s].whole();
}

double Replay::seconds(const Without& without) const {
  return mean_over(lines_, [&](const LineParts& line) { return meeting(line, without); });
}

std::vector<double> Replay::own_seconds(const LineParts& line, const Without& without) const {
  std::vector<double> own;
  for (const StepParts& one : line.ranks) {
    own.push_back(one.compute - (without.stolen ? stolen_seconds(one) : 0));
  }
  for (const SlowRank& slow : without.slow_ranks) own[slow.index] /= 1 + slow.excess;
  for (size_t i = 0; i < own.size() && without.unevenness; ++i) own[i] /= work_[i];
  return own;
}

double Replay::meeting(const LineParts& line, const Without& without) const {
  const std::vector<double> own = own_seconds(line, without);
  const double moved = without.transfer ? 0 : mean_of(line, &StepParts::exposed_transfer);
  if (!schedules_.empty() && !without.bubble) return of_pipelines(line, own, !without.data) + moved;
  double longest = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    longest = std::max(longest, own[i] + (without.data ? 0 : line.ranks[i].data));
  }
  return longest + moved;
}

/// A rank that waits for samples delays what it is late for: its first action.
double Replay::of_pipelines(const LineParts& line, const std::vector<double>& own,
                            bool waits) const {
  double longest = 0;
  for (const std::vector<size_t>& ranks : pipelines_) {
    const auto& share = plan::share_of(plan_, static_cast<int>(ranks[0]));
    const auto& schedule = schedules_[&share - plan_.shares.data()];
    schedule::PipelineTimes times{.stages = stages_};
    for (size_t s = 0; s < stages_.size(); ++s) {
      const int place = place_of_stage_[s];
      const double factor =
          own[ranks[place]] / planned_[place] / static_cast<double>(share.num_micro_batches);
      times.stages[s].forward *= factor;
      times.stages[s].backward_input *= factor;
      times.stages[s].backward_weight *= factor;
    }
    const auto timeline = schedule::simulate(schedule, times).or_throw();
    double late = 0;
    for (size_t place = 0; waits && place < ranks.size(); ++place) {
      late = std::max(late, line.ranks[ranks[place]].data -
                                first_compute(schedule.ranks[place], timeline.ranks[place]));
    }
    longest = std::max(longest, timeline.seconds + late);
  }
  return longest;
}

}  // namespace hanji::report
