#include "hanji/comm/nccl/group.h"

#include <fmt/format.h>

#include <utility>

#include "hanji/comm/internal/state.h"
#include "hanji/comm/nccl/internal/connect.h"

namespace hanji::comm::nccl {
namespace {

/// The library, with its log beside those of the rank.
std::shared_ptr<const Library> load(Options options, int rank) {
  if (!options.log_directory.empty()) {
    const auto file = options.log_directory / fmt::format("nccl.rank.{}", rank);
    options.variables["NCCL_DEBUG_FILE"] = file.string();
    options.variables.try_emplace("NCCL_DEBUG", "INFO");
  }
  auto library = Library::load(options);
  if (!library.ok()) throw Error(library.status());
  return *std::move(library);
}

}  // namespace

Group group_over(const Ground& ground, const Group& meet, GroupOptions options) {
  auto divide = [ground, meet](int /*id*/, const std::vector<int>& members, GroupOptions divided) {
    return group_over(ground, meet.subgroup(members, divided.name), std::move(divided));
  };
  auto engine = std::make_unique<NcclEngine>(connect_all(ground, meet), options);
  return Group(GroupState::make(std::move(engine), meet.heap(), std::move(options),
                                std::make_shared<GroupFamily>(), std::move(divide)));
}

Group make_group(const Group& meet, c10::Device device, GroupOptions group_options,
                 const Options& options) {
  std::shared_ptr<Stream> stream = make_stream(device);
  return group_over({load(options, meet.rank()), std::move(stream), device}, meet,
                    std::move(group_options));
}

Result<std::string> find_version(const Options& options) {
  HANJI_ASSIGN_OR_RETURN(const auto library, Library::load(options));
  return version_text(library->version());
}

}  // namespace hanji::comm::nccl
