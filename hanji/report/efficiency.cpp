#include "hanji/report/efficiency.h"

#include <fmt/format.h>

#include <optional>

#include "hanji/base/json.h"
#include "hanji/base/units.h"

namespace hanji::report {
namespace {

struct KnownGain {
  double speed_up = 0;
  double efficiency = 0;
};

std::optional<KnownGain> known_gain(const RunRecords& run) {
  const auto summary = base::parse_json(run.summary);
  if (!summary.ok() || !summary->is_object()) return std::nullopt;
  const auto number = [&](const char* name) {
    return summary->contains(name) && (*summary)[name].is_number() ? (*summary)[name].get<double>()
                                                                   : 0;
  };
  const KnownGain gain{number("speed_up"), number("efficiency")};
  return gain.speed_up > 0 ? std::optional(gain) : std::nullopt;
}

std::string command_of(const RunRecords& run) {
  if (run.plan.hosts.several()) {
    return fmt::format("train the job on one rank as well, then hanji report --scaling DIR {}",
                       run.folder.string());
  }
  return fmt::format("hanji bench scaling --ranks 1,{} --like {}", run.plan.ranks,
                     run.folder.string());
}

}  // namespace

std::string efficiency_line(const RunRecords& run) {
  if (run.plan.ranks == 1) return "";
  if (const auto gain = known_gain(run)) {
    return fmt::format(
        "efficiency   {:.0f} %: {} were {:.2f} times as fast as an earlier run on one rank\n",
        100 * gain->efficiency, base::counted(run.plan.ranks, "rank"), gain->speed_up);
  }
  return fmt::format("efficiency   not known without a run on one rank: {}\n", command_of(run));
}

std::string efficiency_hint(const RunRecords& run) {
  if (run.plan.ranks == 1 || known_gain(run)) return "";
  return fmt::format("efficiency: {}\n", command_of(run));
}

}  // namespace hanji::report
