#include "hanji/report/step_timeline.h"
#include "hanji/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "hanji/report/internal/trace_steps.h"

namespace hanji::report {
namespace {

using internal::TraceSteps;

constexpr double kResolution = 1e-3;  // Of a step: finer spans are no wider than a pixel.

/// Length of each account's step, that of the longest rank; without the first step.
std::map<int64_t, double> lengths_of(const RunRecords& run) {
  std::map<int64_t, double> lengths;
  for (const RankSteps& rank : run.ranks) {
    for (size_t i = 1; i < rank.accounts.size(); ++i) {
      const StepAccount& one = rank.accounts[i];
      double& longest = lengths[one.step];
      longest = std::max(longest, one.seconds / static_cast<double>(one.steps));
    }
  }
  return lengths;
}

struct Chosen {
  int64_t median = 0;
  int64_t slowest = 0;
};

Chosen choose(const std::map<int64_t, double>& lengths) {
  std::vector<std::pair<double, int64_t>> sorted;
  for (const auto& [step, seconds] : lengths) sorted.emplace_back(seconds, step);
  std::ranges::sort(sorted);
  return {sorted[(sorted.size() - 1) / 2].second, sorted.back().second};
}

/// The ranks that are drawn.
std::vector<int> shown_ranks(const RunRecords& run) {
  std::vector<int> all, shown;
  for (const RankSteps& one : run.ranks) all.push_back(one.rank);
  const size_t count = std::min(all.size(), kMaxTimelineRanks);
  for (size_t i = 0; i < count; ++i) shown.push_back(all[i * all.size() / count]);
  return shown;
}

RankTimeline from_account(int rank, const StepAccount& account) {
  RankTimeline line{.rank = rank};
  double at = 0;
  const auto add = [&](SpanKind kind, double seconds) {
    seconds = std::max(0.0, seconds / static_cast<double>(account.steps));
    if (seconds > 0) line.spans.push_back({kind, at, at + seconds});
    at += seconds;
  };
  const auto compute = compute_seconds(account);
  if (!compute) {  // what is left is not told apart
    add(SpanKind::kCompute, account.seconds - account.data);
    add(SpanKind::kData, account.data);
    return line;
  }
  add(SpanKind::kCompute, *compute);
  add(SpanKind::kData, account.data);
  add(SpanKind::kTransfer, *account.exposed_transfer);
  add(SpanKind::kSkew, *account.skew);
  return line;
}

StepTimeline from_accounts(const RunRecords& run, int64_t step, std::string note) {
  StepTimeline timeline{.step = step, .note = std::move(note)};
  const std::vector<int> shown = shown_ranks(run);
  bool is_told = true;
  for (const RankSteps& rank : run.ranks) {
    const auto found = std::ranges::find(rank.accounts, step, &StepAccount::step);
    if (found == rank.accounts.end()) continue;
    timeline.seconds =
        std::max(timeline.seconds, found->seconds / static_cast<double>(found->steps));
    if (!std::ranges::binary_search(shown, rank.rank)) continue;
    timeline.ranks.push_back(from_account(rank.rank, *found));
    is_told = is_told && compute_seconds(*found).has_value();
  }
  if (!is_told) {
    timeline.note +=
        "; computing has moving bytes and waiting for ranks in it: the engine does not tell";
  }
  return timeline;
}

/// The traces of the ranks that are drawn, or why there is not one of each.
class Traces {
 public:
  explicit Traces(const RunRecords& run) : several_hosts_(run.plan.hosts.several()) {
    for (const int rank : shown_ranks(run)) {
      const auto path = run.folder / "trace" / fmt::format("rank.{}.json", rank);
      if (!std::filesystem::exists(path)) {
        why_ = fmt::format("{} is not there: a run writes it at its end", path.string());
        return;
      }
      auto trace = TraceSteps::open(path);
      if (!trace.ok()) {
        why_ = trace.status().message();
        return;
      }
      traces_.emplace(rank, *std::move(trace));
    }
  }

  StepTimeline timeline(const RunRecords& run, int64_t step) const {
    if (!why_.empty()) return from_accounts(run, step, why_);
    for (const auto& [rank, trace] : traces_) {
      if (trace.steps().contains(step)) continue;
      return from_accounts(
          run, step,
          fmt::format("the trace of rank {} has step {} no more: it keeps the last events", rank,
                      step));
    }
    auto traced = from_traces(step);
    return traced.ok() ? *std::move(traced) : from_accounts(run, step, traced.status().message());
  }

 private:
  Result<StepTimeline> from_traces(int64_t step) const {
    StepTimeline timeline{.step = step, .is_traced = true};
    double first = traces_.begin()->second.steps().at(step).begin;
    std::optional<double> error = 0;
    for (const auto& [rank, trace] : traces_) {
      first = std::min(first, trace.steps().at(step).begin);
      const auto own = trace.clock_error();
      error = own && error ? std::optional(std::max(*own, *error)) : std::nullopt;
    }
    for (const auto& [rank, trace] : traces_) {
      const TraceSteps::Window window = trace.steps().at(step);
      const double origin = several_hosts_ && !error ? window.begin : first;
      timeline.seconds = std::max(timeline.seconds, window.end - origin);
      HANJI_ASSIGN_OR_RETURN(auto spans,
                             trace.spans(step, origin, kResolution * (window.end - window.begin)));
      timeline.ranks.push_back({rank, std::move(spans)});
    }
    if (several_hosts_) {
      timeline.note = error ? fmt::format("the clocks of the hosts agree within {}",
                                          base::format_seconds(*error))
                            : "each rank from its own begin of the step: hosts have clocks of "
                              "their own, which the traces do not align";
    }
    return timeline;
  }

  bool several_hosts_;
  std::string why_;
  std::map<int, TraceSteps> traces_;
};

}  // namespace

std::string_view name_of(SpanKind kind) {
  constexpr std::array<std::string_view, kNumSpanKinds> kNames = {
      "compute", "forward", "backward", "optimizer", "samples", "bytes", "waits"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<StepTimeline> read_timelines(const RunRecords& run) {
  const std::map<int64_t, double> lengths = lengths_of(run);
  if (lengths.empty()) return {};
  const Chosen chosen = choose(lengths);
  const Traces traces(run);
  std::vector<StepTimeline> timelines = {traces.timeline(run, chosen.median)};
  if (chosen.slowest == chosen.median) return timelines;
  timelines.push_back(traces.timeline(run, chosen.slowest));
  timelines.back().is_slowest = true;
  return timelines;
}

}  // namespace hanji::report
