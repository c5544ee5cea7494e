#include "hanji/report/step_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace hanji::report {
namespace {

/// The number that all of `text` is; nothing for other text.
std::optional<int64_t> number_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

/// The accounts of a rank, looked up in ascending steps.
class Cursor {
 public:
  explicit Cursor(const RankSteps& rank)
      : next_(rank.accounts.begin()), end_(rank.accounts.end()) {}

  /// The account of the same steps; nullptr: there is none.
  const StepAccount* find(const StepAccount& same) {
    while (next_ != end_ && next_->step < same.step) ++next_;
    const bool is_same = next_ != end_ && next_->step == same.step && next_->steps == same.steps;
    return is_same ? &*next_ : nullptr;
  }

 private:
  std::vector<StepAccount>::const_iterator next_, end_;
};

}  // namespace

Result<StepRange> parse_steps(std::string_view text) {
  const size_t dash = text.find('-');
  StepRange range;
  bool is_range = dash != std::string_view::npos && text.size() > 1;
  if (is_range) {
    const auto read = [&](std::string_view part, int64_t& value) {
      if (part.empty()) return true;
      const auto number = number_in(part);
      value = number.value_or(value);
      return number.has_value();
    };
    is_range = read(text.substr(0, dash), range.first) && read(text.substr(dash + 1), range.last);
  }
  if (is_range && range.first <= range.last) return range;
  return base::invalid_argument(
      fmt::format("{} is no range of steps; write it as 101-200, both counted from 1", text));
}

RunRecords only_steps(RunRecords run, const StepRange& range) {
  for (RankSteps& rank : run.ranks) {
    std::erase_if(rank.accounts, [&](const StepAccount& one) {
      return one.step - one.steps + 1 < range.first || one.step > range.last;
    });
  }
  return run;
}

std::vector<StepLine> step_lines(const RunRecords& run) {
  std::vector<StepLine> lines;
  if (run.ranks.empty()) return lines;
  std::vector<Cursor> cursors(run.ranks.begin(), run.ranks.end());
  for (const StepAccount& first : run.ranks.front().accounts) {
    if (first.step == first.steps) continue;  // step 1 is among them
    StepLine line{.step = first.step, .steps = first.steps, .ranks = {}};
    for (Cursor& cursor : cursors) line.ranks.push_back(cursor.find(first));
    if (std::ranges::count(line.ranks, nullptr) == 0) lines.push_back(std::move(line));
  }
  return lines;
}

std::string_view name_of(StepPart part) {
  switch (part) {
    case StepPart::kStep: return "step";
    case StepPart::kCompute: return "compute";
    case StepPart::kData: return "samples";
    case StepPart::kTransfer: return "moving bytes";
    case StepPart::kSkew: return "waiting";
  }
  return "";
}

std::optional<double> seconds_of(const StepAccount& account, StepPart part) {
  const auto per_step = [&](const std::optional<double>& sum) {
    return sum ? std::optional(*sum / static_cast<double>(account.steps)) : std::nullopt;
  };
  switch (part) {
    case StepPart::kStep: return per_step(account.seconds);
    case StepPart::kCompute: return per_step(compute_seconds(account));
    case StepPart::kData: return per_step(account.data);
    case StepPart::kTransfer: return per_step(account.exposed_transfer);
    case StepPart::kSkew: return per_step(account.skew);
  }
  return std::nullopt;
}

Series series_of(const std::vector<StepLine>& lines, StepPart part, std::optional<size_t> rank) {
  Series series;
  for (const StepLine& line : lines) {
    const size_t first = rank.value_or(0), end = rank ? *rank + 1 : line.ranks.size();
    double sum = 0;
    for (size_t i = first; i < end; ++i) {
      const auto seconds = seconds_of(*line.ranks[i], part);
      if (!seconds) return {};
      sum += *seconds;
    }
    series.push_back(sum / static_cast<double>(end - first));
  }
  return series;
}

Series axis_series(const std::vector<StepLine>& lines, StepPart part, std::string_view axis) {
  Series series;
  for (const StepLine& line : lines) {
    double sum = 0;
    for (const StepAccount* account : line.ranks) {
      const auto found = std::ranges::find(account->axes, axis, &AxisAccount::axis);
      if (found == account->axes.end()) continue;
      const auto& seconds = part == StepPart::kSkew ? found->skew : found->exposed_transfer;
      if (!seconds) return {};
      sum += *seconds;
    }
    series.push_back(sum / static_cast<double>(line.ranks.size() * line.steps));
  }
  return series;
}

double cpu_share(const std::vector<StepLine>& lines) {
  double cpu = 0, compute = 0;
  for (const StepLine& line : lines) {
    for (const StepAccount* account : line.ranks) {
      cpu += account->cpu;
      compute += compute_seconds(*account).value_or(0);
    }
  }
  return compute > 0 ? cpu / compute : 1;
}

}  // namespace hanji::report
