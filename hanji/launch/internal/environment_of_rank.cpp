#include "hanji/launch/internal/environment_of_rank.h"

#include <algorithm>
#include <string_view>

#include "hanji/base/env.h"
#include "hanji/launch/environment.h"

namespace hanji::launch {
namespace {

using base::Variable;

std::string_view name_in(std::string_view line) { return line.substr(0, line.find('=')); }

void remove(std::vector<std::string>& lines, std::string_view name) {
  std::erase_if(lines, [&](const std::string& line) { return name_in(line) == name; });
}

}  // namespace

std::vector<std::string> environment_of_rank(const LaunchOptions& options,
                                             const Announcement& announcement,
                                             const base::HostPort& master) {
  std::vector<base::Setting> settings = {
      {Variable::kRank, std::to_string(announcement.first_rank + announcement.rank)},
      {Variable::kWorldSize, std::to_string(announcement.world_size)},
      {Variable::kLocalRank, std::to_string(announcement.rank)},
      {Variable::kLocalWorldSize, std::to_string(announcement.size)},
      {Variable::kGroupRank, std::to_string(announcement.node)},
      {Variable::kGroupWorldSize, std::to_string(announcement.num_nodes)},
      {Variable::kHanjiEndpoints, to_text(announcement)},
      {Variable::kTorchelasticRestartCount, std::to_string(options.restart_count)},
  };
  if (master.port != 0) {
    settings.push_back({Variable::kMasterAddr, master.host});
    settings.push_back({Variable::kMasterPort, std::to_string(master.port)});
  }
  const bool pinned = announcement.rank < static_cast<int>(options.cpus.size()) &&
                      !options.cpus[announcement.rank].empty();
  if (pinned && !base::read(Variable::kOmpNumThreads)) {
    const size_t threads = options.cpus[announcement.rank].size();
    settings.push_back({Variable::kOmpNumThreads, std::to_string(threads)});
  }
  std::vector<std::string> lines = base::child_environment(settings);
  for (const Variable variable : identity_variables()) {
    const bool ours = std::any_of(settings.begin(), settings.end(), [&](const auto& setting) {
      return setting.variable == variable;
    });
    if (!ours) remove(lines, base::spec_of(variable).name);
  }
  for (const std::string& line : options.environment) {
    remove(lines, name_in(line));
    lines.push_back(line);
  }
  return lines;
}

}  // namespace hanji::launch
