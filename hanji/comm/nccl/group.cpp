#include "hanji/comm/nccl/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "hanji/base/env.h"
#include "hanji/comm/internal/state.h"
#include "hanji/comm/nccl/internal/connect.h"
#include "hanji/comm/nccl/internal/way.h"

namespace hanji::comm::nccl {
namespace {

bool is_set(std::string_view name) {
  const auto environment = base::read_environment();
  return std::ranges::find(environment, name, &base::NamedValue::name) != environment.end();
}

/// The library, with its log beside those of the rank, that connects all its algorithms when a
/// group is made: at the first call of each it would hold the host up, as connect_pairs() tells.
std::shared_ptr<const Library> load(Options options, int rank) {
  if (!is_set("NCCL_RUNTIME_CONNECT")) options.variables.try_emplace("NCCL_RUNTIME_CONNECT", "0");
  if (!options.log_directory.empty()) {
    const auto file = log_file(options.log_directory, rank).string();
    options.variables.try_emplace("NCCL_DEBUG_FILE", file);
    if (!is_set("NCCL_DEBUG")) options.variables.try_emplace("NCCL_DEBUG", "INFO");
  }
  auto library = Library::load(options);
  if (!library.ok()) throw Error(library.status());
  return *std::move(library);
}

}  // namespace

Group group_over(const Ground& ground, const Group& meet, GroupOptions options,
                 std::shared_ptr<GroupFamily> family) {
  auto divide = [ground, meet, family](int /*id*/, const std::vector<int>& members,
                                       GroupOptions divided) {
    return group_over(ground, meet.subgroup(members, divided.name), std::move(divided), family);
  };
  Parts parts = connect_all(ground, meet);
  parts.names = options.rank_names;
  auto engine = std::make_unique<NcclEngine>(std::move(parts), options);
  auto ways = make_ways(ground, meet, options, family);
  return Group(GroupState::make(std::move(engine), meet.heap(), std::move(options),
                                std::move(family), std::move(divide), std::move(ways)));
}

Group make_group(const Group& meet, c10::Device device, GroupOptions group_options,
                 const Options& options) {
  StreamSource streams = stream_source(device);
  return group_over({load(options, meet.rank()), std::move(streams), device}, meet,
                    std::move(group_options));
}

std::filesystem::path log_file(const std::filesystem::path& directory, int rank) {
  return directory / fmt::format("nccl.rank.{}", rank);
}

Result<std::string> find_version(const Options& options) {
  HANJI_ASSIGN_OR_RETURN(const auto library, Library::load(options));
  return version_text(library->version());
}

}  // namespace hanji::comm::nccl
