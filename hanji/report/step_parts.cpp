#include "hanji/report/step_parts.h"

#include <fmt/format.h>

#include "hanji/base/units.h"
#include "hanji/report/step_lines.h"

namespace hanji::report {
namespace {

StepParts parts_of(int rank, const StepAccount& one, double compute) {
  const auto steps = static_cast<double>(one.steps);
  return {.rank = rank,
          .seconds = one.seconds / steps,
          .compute = compute / steps,
          .data = one.data / steps,
          .exposed_transfer = *one.exposed_transfer / steps,
          .skew = *one.skew / steps,
          .cpu = one.cpu / steps,
          .faults = static_cast<double>(one.major_faults) / steps};
}

}  // namespace

std::vector<LineParts> lines_of(const RunRecords& run) {
  std::vector<LineParts> lines;
  if (std::ssize(run.ranks) != run.plan.ranks) return {};
  for (const StepLine& line : step_lines(run)) {
    LineParts parts{.steps = line.steps};
    for (size_t i = 0; i < line.ranks.size(); ++i) {
      const StepAccount& one = *line.ranks[i];
      const auto compute = compute_seconds(one);
      if (!compute) return {};
      parts.ranks.push_back(parts_of(run.ranks[i].rank, one, *compute));
    }
    lines.push_back(std::move(parts));
  }
  return lines;
}

std::string why_no_lines(const RunRecords& run) {
  const std::string folder = (run.folder / kAccountFolder).string();
  if (run.ranks.empty()) {
    return fmt::format("{} has no records of steps; runs of this build write them", folder);
  }
  if (std::ssize(run.ranks) != run.plan.ranks) {
    return fmt::format("records of {} of {} lie here; copy those of the other hosts into {}",
                       run.ranks.size(), base::counted(run.plan.ranks, "rank"), folder);
  }
  for (const RankSteps& rank : run.ranks) {
    for (const StepAccount& one : rank.accounts) {
      if (!compute_seconds(one)) {
        return fmt::format("the engine {} does not tell moving bytes from waiting for a rank",
                           plan::name_of(run.plan.config.comm.engine));
      }
    }
  }
  return "no step is in the records of all ranks";
}

int64_t steps_of(const std::vector<LineParts>& lines) {
  int64_t steps = 0;
  for (const LineParts& line : lines) steps += line.steps;
  return steps;
}

double mean_of(const LineParts& line, double StepParts::*part) {
  double sum = 0;
  for (const StepParts& rank : line.ranks) sum += rank.*part;
  return sum / static_cast<double>(line.ranks.size());
}

std::vector<StepParts> mean_parts(const std::vector<LineParts>& lines) {
  std::vector<StepParts> parts;
  if (lines.empty()) return parts;
  for (size_t i = 0; i < lines.front().ranks.size(); ++i) {
    StepParts mean{.rank = lines.front().ranks[i].rank};
    for (double StepParts::*part :
         {&StepParts::seconds, &StepParts::compute, &StepParts::data, &StepParts::exposed_transfer,
          &StepParts::skew, &StepParts::cpu, &StepParts::faults}) {
      mean.*part = mean_over(lines, [&](const LineParts& line) { return line.ranks[i].*part; });
    }
    parts.push_back(mean);
  }
  return parts;
}

std::vector<StepParts> mean_parts(const RunRecords& run) { return mean_parts(lines_of(run)); }

}  // namespace hanji::report
