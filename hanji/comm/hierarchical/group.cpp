#include "hanji/comm/hierarchical/group.h"

#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "hanji/comm/hierarchical/host_map.h"
#include "hanji/comm/hierarchical/internal/engine.h"
#include "hanji/comm/internal/state.h"

namespace hanji::comm::hierarchical {
namespace {

/// What a group and all that come out of it share. The family is that of the local group, so that
/// a wait for one group drives all of them.
struct Ancestry {
  Join join;
  std::string between;  ///< The engine between hosts.
  std::shared_ptr<GroupFamily> family;
};

struct Place {
  std::string name;  ///< Differs between groups of a family.
  HostMap hosts;
  std::vector<int> world_ranks;  ///< By rank.
  int rank = 0;
};

GroupOptions inner_options(GroupOptions options, std::string_view what) {
  options.name = fmt::format("{}, {}", options.name, what);
  options.recorder = nullptr;
  options.progress = Progress::kCaller;
  return options;
}

/// Nobody else drives it: its owner, an engine, does so when it is driven itself.
void leave_to_its_owner(const Group& inner) {
  GroupFamily& family = inner.state()->family();
  const std::lock_guard lock(family.mutex);
  std::erase_if(family.members, [&](const auto& one) { return one.lock() == inner.state(); });
}

/// The whole group's deadline comes first: it knows more.
GroupOptions options_between(const GroupOptions& options, std::string_view what) {
  GroupOptions between = inner_options(options, what);
  between.deadline = 2 * options.deadline;
  return between;
}

std::optional<Group> join_rail(const Ancestry& ancestry, const Place& place,
                               const GroupOptions& options) {
  const int rail = place.hosts.rail(place.rank);
  if (rail >= place.hosts.num_rails()) return {};
  const std::vector<int> peers = place.hosts.rail_peers(rail);
  std::vector<int> members;
  for (const int rank : peers) members.push_back(place.world_ranks[rank]);
  GroupOptions between = options_between(options, fmt::format("rail {}", rail));
  between.rank_names = options.rank_names.part(peers);
  return ancestry.join(fmt::format("{}.rail{}", place.name, rail), members, std::move(between));
}

std::function<Group()> make_join_all(const Ancestry& ancestry, const Place& place,
                                     const GroupOptions& options) {
  return [join = ancestry.join, name = place.name + ".all", members = place.world_ranks,
          between = options_between(options, "all ranks")] { return join(name, members, between); };
}

Group make(const Ancestry& ancestry, Place place, Group local, GroupOptions options,
           GroupState::Connect connect);

GroupState::Divide make_divide(const Ancestry& ancestry, const Place& place, const Group& local) {
  return [=](int id, const std::vector<int>& members, GroupOptions options) {
    std::vector<int> world_ranks;
    std::vector<int> rails, on_host;
    int mine = 0;
    for (const int rank : members) {
      const auto index = static_cast<int>(world_ranks.size());
      if (rank == place.rank) mine = index;
      world_ranks.push_back(place.world_ranks[rank]);
      if (place.hosts.host(rank) == place.hosts.host(place.rank)) {
        rails.push_back(place.hosts.rail(rank));
        on_host.push_back(index);
      }
    }
    HostMap hosts = place.hosts.part(members);
    if (hosts.num_hosts() == 1) return local.state()->divide()(id, rails, std::move(options));
    GroupOptions inner = inner_options(options, "on this host");
    inner.rank_names = options.rank_names.part(on_host);
    Group here = local.state()->divide()(id, rails, std::move(inner));
    leave_to_its_owner(here);
    Place part{fmt::format("{}.{}", id, world_ranks[0]), std::move(hosts), std::move(world_ranks),
               mine};
    return make(ancestry, std::move(part), std::move(here), std::move(options), nullptr);
  };
}

Group make(const Ancestry& ancestry, Place place, Group local, GroupOptions options,
           GroupState::Connect connect) {
  std::optional<Group> rail_peers = join_rail(ancestry, place, options);
  auto join_all = make_join_all(ancestry, place, options);
  auto divide = make_divide(ancestry, place, local);
  Heap heap = local.heap();
  auto engine = std::make_unique<HierarchicalEngine>(
      Peers{std::move(place.hosts), place.rank, std::move(local), std::move(rail_peers),
            ancestry.between, std::move(join_all)},
      options);
  return Group(GroupState::make(std::move(engine), std::move(heap), std::move(options),
                                ancestry.family, std::move(divide), std::move(connect)));
}

/// Messages within a host by its memory, others by the engine between hosts.
GroupState::Connect make_connect(const HostMap& hosts, const Group& local, const Group& flat) {
  return [=](const GroupState::Ends& ends) {
    const auto& [sender, receiver, names] = ends;
    if (hosts.host(sender) == hosts.host(receiver)) {
      return local.state()->connect()({hosts.rail(sender), hosts.rail(receiver), names});
    }
    auto channel = flat.state()->connect()(ends);
    // The memory where others see what a rank waits for.
    Heap& heap = channel->heap();
    if (heap.segment() != local.heap().segment()) heap = local.heap();
    return channel;
  };
}

void check(const Group& local, const Hosts& given, const HostMap& hosts,
           const GroupOptions& options) {
  const auto refuse = [&](const std::string& why) {
    throw Error(base::invalid_argument(fmt::format("group {}: {}", options.name, why)));
  };
  if (given.rank < 0 || given.rank >= hosts.num_ranks()) {
    refuse(fmt::format("rank {} is none of {}", given.rank, hosts.num_ranks()));
  }
  const int here = hosts.host(given.rank);
  if (local.size() != static_cast<int>(hosts.ranks(here).size()) ||
      local.rank() != hosts.rail(given.rank)) {
    refuse(fmt::format(
        "its hosts give rank {} place {} of {} on its host, and the local group "
        "place {} of {}",
        given.rank, hosts.rail(given.rank), hosts.ranks(here).size(), local.rank(), local.size()));
  }
  if (local.engine() != "shm") {
    refuse(
        fmt::format("the local group is over {} and must be over shared memory", local.engine()));
  }
}

}  // namespace

Group make_group(Group local, const Hosts& given, const Join& join, GroupOptions options) {
  Place place{"all", HostMap(given.host_of), {}, given.rank};
  check(local, given, place.hosts, options);
  if (place.hosts.num_hosts() == 1) {
    throw Error(base::invalid_argument(fmt::format(
        "group {}: all ranks share one host; use the group over its shared memory", options.name)));
  }
  place.world_ranks.resize(place.hosts.num_ranks());
  std::iota(place.world_ranks.begin(), place.world_ranks.end(), 0);
  const Group flat = join("messages", place.world_ranks, inner_options(options, "messages"));
  const Ancestry ancestry{join, std::string(flat.engine()), local.state()->shared_family()};
  flat.state()->family().beside = ancestry.family;
  flat.state()->family().segment = local.heap().segment();
  ancestry.family->beside = flat.state()->shared_family();
  leave_to_its_owner(local);
  auto connect = make_connect(place.hosts, local, flat);
  return make(ancestry, std::move(place), std::move(local), std::move(options), std::move(connect));
}

}  // namespace hanji::comm::hierarchical
