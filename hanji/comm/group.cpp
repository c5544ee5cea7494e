#include "hanji/comm/group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/internal/shm_engine.h"
#include "hanji/comm/internal/state.h"
#include "hanji/cost/select.h"

namespace hanji::comm {
namespace {

shm::EngineOptions engine_options_of(const GroupOptions& options) {
  shm::EngineOptions engine;
  engine.deadline = options.deadline;
  engine.usable_processors = options.usable_processors;
  engine.recorder = options.recorder;
  return engine;
}

/// One channel per pair of ranks and direction, whatever groups they share: its two ends count its
/// messages, so a second one must not begin beside it.
std::shared_ptr<GroupState> open_channel(const Heap& heap,
                                         const std::shared_ptr<GroupFamily>& family, int sender,
                                         int receiver, GroupOptions options) {
  const std::lock_guard lock(family->channels_mutex);
  auto& kept = family->channels[{sender, receiver}];
  if (auto open = kept.lock()) return open;
  options.name = fmt::format("{} {}->{}", options.name, sender, receiver);
  auto engine = shm::Engine::create_channel(heap.segment(), sender, receiver, heap.rank(),
                                            engine_options_of(options));
  if (!engine.ok()) throw Error(engine.status().at("channel " + options.name));
  auto state = GroupState::make(std::make_unique<ShmEngine>(*std::move(engine), heap), heap,
                                std::move(options), family, nullptr);
  kept = state;
  return state;
}

GroupState::Connect make_connect(const Heap& heap, const std::shared_ptr<GroupFamily>& family,
                                 const std::vector<int>& members, const GroupOptions& options) {
  using Kept = std::map<std::pair<int, int>, std::shared_ptr<GroupState>>;
  return [=, kept = std::make_shared<Kept>(), mutex = std::make_shared<std::mutex>()](
             int sender, int receiver) {
    const std::lock_guard lock(*mutex);
    auto& channel = (*kept)[{sender, receiver}];
    if (!channel) {
      channel = open_channel(heap, family, members[sender], members[receiver], options);
    }
    return channel;
  };
}

Group make_shm_group(const Heap& heap, std::shared_ptr<GroupFamily> family, int id,
                     const std::vector<int>& members, GroupOptions options) {
  {
    const std::lock_guard lock(family->mutex);
    family->next_id = std::max(family->next_id, id + 1);
  }
  auto engine =
      shm::Engine::create(heap.segment(), id, members, heap.rank(), engine_options_of(options));
  if (!engine.ok()) throw Error(engine.status().at("group " + options.name));
  auto divide = [heap, family, members](int chosen_id, const std::vector<int>& chosen,
                                        GroupOptions chosen_options) {
    std::vector<int> ranks;
    for (const int rank : chosen) ranks.push_back(members[rank]);
    return make_shm_group(heap, family, chosen_id, ranks, std::move(chosen_options));
  };
  if (!options.chooser) options.chooser = std::make_shared<cost::Chooser>(cost::Rates{});
  auto connect = make_connect(heap, family, members, options);
  return Group(GroupState::make(std::make_unique<ShmEngine>(*std::move(engine), heap), heap,
                                std::move(options), family, std::move(divide), std::move(connect)));
}

void check_members(const std::vector<int>& members, int rank, int size, std::string_view name) {
  const std::set<int> distinct(members.begin(), members.end());
  const bool inside = !members.empty() && *distinct.begin() >= 0 && *distinct.rbegin() < size;
  if (!inside || distinct.size() != members.size() || !distinct.contains(rank)) {
    throw Error(base::invalid_argument(
        fmt::format("group {}: members [{}] must be different ranks below {} and contain the "
                    "caller, rank {}",
                    name, fmt::join(members, ", "), size, rank)));
  }
}

/// What a rank says when a group is divided: [next free id, number of members, members..., -1...].
std::vector<std::vector<int64_t>> gather_lists(const Group& parent, const std::vector<int>& members,
                                               std::string_view name) {
  const int64_t width = parent.size() + 2;
  at::Tensor mine = at::full({width}, -1, at::kLong);
  auto* said = mine.data_ptr<int64_t>();
  {
    GroupFamily& family = parent.state()->family();
    const std::lock_guard lock(family.mutex);
    said[0] = family.next_id;
  }
  said[1] = static_cast<int64_t>(members.size());
  std::copy(members.begin(), members.end(), said + 2);
  at::Tensor all = at::empty({width * parent.size()}, at::kLong);
  all_gather(all, mine, parent, {.label = name}).wait();
  std::vector<std::vector<int64_t>> lists;
  for (int rank = 0; rank < parent.size(); ++rank) {
    const auto* begin = all.const_data_ptr<int64_t>() + rank * width;
    lists.emplace_back(begin, begin + width);
  }
  return lists;
}

/// The id of the new groups: free on every rank of the parent. Every rank sees the same lists, so
/// all refuse together unless every member of a list gave that list.
int agree_on_id(const Group& parent, const std::vector<int>& members, std::string_view name) {
  const auto lists = gather_lists(parent, members, name);
  int64_t id = 0;
  for (int rank = 0; rank < parent.size(); ++rank) {
    const std::span<const int64_t> list = lists[rank];
    id = std::max(id, list[0]);
    for (const int64_t member : list.subspan(2, list[1])) {
      if (std::ranges::equal(list.subspan(1), std::span(lists[member]).subspan(1))) continue;
      throw Error(base::mismatch(fmt::format(
          "group {}: rank {} asked for members [{}] and its member rank {} for [{}]; the lists "
          "must be equal or have no rank in common",
          name, rank, fmt::join(list.subspan(2, list[1]), ", "), member,
          fmt::join(std::span(lists[member]).subspan(2, lists[member][1]), ", "))));
    }
  }
  return static_cast<int>(id);
}

}  // namespace

Group Group::over_shm(std::shared_ptr<shm::Segment> segment, int group_id, std::vector<int> members,
                      int my_world_rank, GroupOptions options) {
  check_members(members, my_world_rank, segment->ranks(), options.name);
  return make_shm_group(Heap(std::move(segment), my_world_rank), std::make_shared<GroupFamily>(),
                        group_id, members, std::move(options));
}

Group Group::alone(Heap heap, GroupOptions options) {
  if (heap.segment()->ranks() != 1) {
    throw Error(base::invalid_argument(
        fmt::format("group {}: a heap shared by {} ranks belongs to their group; use "
                    "group.subgroup({{rank}}) for a group of one",
                    options.name, heap.segment()->ranks())));
  }
  return make_shm_group(heap, std::make_shared<GroupFamily>(), 0, {0}, std::move(options));
}

Group Group::alone(GroupOptions options) {
  return alone(Heap::private_arena(), std::move(options));
}

int Group::rank() const { return state_->engine().rank(); }
int Group::size() const { return state_->engine().size(); }
const std::string& Group::name() const { return state_->options().name; }
std::string_view Group::engine() const { return state_->engine().name(); }
bool Group::serves(c10::Device device) const { return state_->engine().serves(device); }
Heap& Group::heap() const { return state_->heap(); }
void Group::advance() const { state_->advance(); }
const GroupOptions& Group::options() const { return state_->options(); }
trace::Recorder* Group::recorder() const { return state_->options().recorder; }
Stats Group::stats() const { return state_->stats(); }
uint64_t Group::sequence() const { return state_->sequence(); }

Group Group::subgroup(const std::vector<int>& members, std::string_view name) const {
  check_members(members, rank(), size(), name);
  if (!state_->divide()) {
    throw Error(base::unsupported(fmt::format(
        "group {}: engine {} cannot be divided; make group {} over a backend of its own",
        this->name(), engine(), name)));
  }
  const int id = agree_on_id(*this, members, name);
  {
    const std::lock_guard lock(state_->family().mutex);
    state_->family().next_id = std::max(state_->family().next_id, id + 1);
  }
  GroupOptions options = state_->options();
  options.name = name;
  Group part = state_->divide()(id, members, std::move(options));
  if (!state_->engine().shares_memory() && state_->connect()) {
    // Messages between two ranks are one sequence, whatever group they are called on.
    part.state()->set_connect([connect = state_->connect(), members](int sender, int receiver) {
      return connect(members[sender], members[receiver]);
    });
  }
  return part;
}

}  // namespace hanji::comm
