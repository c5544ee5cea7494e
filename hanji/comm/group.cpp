#include "hanji/comm/group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "hanji/comm/all_gather.h"
#include "hanji/comm/before_call.h"
#include "hanji/comm/internal/shm_group.h"
#include "hanji/comm/internal/state.h"
#include "hanji/comm/regroup.h"
#include "hanji/shm/segment.h"

namespace hanji::comm {
namespace {

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

int64_t next_id(const Group& group) {
  GroupFamily& family = group.state()->family();
  const std::lock_guard lock(family.mutex);
  return family.next_id;
}

/// What a rank says when a group is divided: [next free id, number of members, members..., -1...].
std::vector<std::vector<int64_t>> gather_lists(const Group& parent, const std::vector<int>& members,
                                               std::string_view name) {
  const int64_t width = parent.size() + 2;
  at::Tensor mine = at::full({width}, -1, at::kLong);
  auto* said = mine.data_ptr<int64_t>();
  said[0] = next_id(parent);
  said[1] = static_cast<int64_t>(members.size());
  std::copy(members.begin(), members.end(), said + 2);
  const c10::Device device = parent.state()->engine().device();
  at::Tensor all = at::empty({width * parent.size()}, mine.options().device(device));
  all_gather(all, mine.to(device), parent, {.label = name}).wait();
  all = all.to(at::kCPU);
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

/// What a rank says when a group is split.
struct SplitChoice {
  int64_t next_id;
  int64_t colour;
  int64_t key;
};

std::vector<SplitChoice> gather_choices(const Group& parent, const SplitChoice& choice,
                                        std::string_view name) {
  at::Tensor mine = at::empty({3}, at::kLong);
  std::memcpy(mine.data_ptr(), &choice, sizeof choice);
  at::Tensor all = at::empty({3 * parent.size()}, at::kLong);
  all_gather(all, mine, parent, {.label = name}).wait();
  std::vector<SplitChoice> choices(parent.size());
  std::memcpy(choices.data(), all.const_data_ptr(), all.nbytes());
  return choices;
}

void check_divides(const Group& parent, std::string_view name) {
  if (parent.state()->divide()) return;
  throw Error(base::unsupported(
      fmt::format("group {}: engine {} cannot be divided; make group {} over a backend of its own",
                  parent.name(), parent.engine(), name)));
}

GroupOptions renamed(const Group& parent, std::string_view name) {
  GroupOptions options = parent.options();
  options.name = name;
  return options;
}

/// The group of `members` with an id that all of them know.
Group divide(const Group& parent, int id, const std::vector<int>& members, GroupOptions options) {
  const auto& state = parent.state();
  {
    const std::lock_guard lock(state->family().mutex);
    state->family().next_id = std::max(state->family().next_id, id + 1);
  }
  options.rank_names = options.rank_names.part(members);
  options.id = id;
  Group part = state->divide()(id, members, std::move(options));
  std::vector<int> in_job = members;
  for (int& rank : in_job) rank = state->job_ranks().empty() ? rank : state->job_ranks()[rank];
  part.state()->set_job_ranks(std::move(in_job));
  if (!state->engine().shares_memory() && state->connect()) {
    // Messages between two ranks are one sequence, whatever group they are called on.
    part.state()->set_connect([connect = state->connect(), members](const GroupState::Ends& ends) {
      return connect({members[ends.sender], members[ends.receiver], ends.names});
    });
  }
  return part;
}

}  // namespace

Group Group::over_shm(std::shared_ptr<shm::Segment> segment, int group_id, std::vector<int> members,
                      int my_world_rank, GroupOptions options) {
  check_members(members, my_world_rank, segment->ranks(), options.name);
  return make_shm_group(Heap(std::move(segment), my_world_rank), std::make_shared<GroupFamily>(),
                        {group_id, std::move(members)}, std::move(options));
}

Group Group::alone(Heap heap, GroupOptions options) {
  if (heap.segment()->ranks() != 1) {
    throw Error(base::invalid_argument(
        fmt::format("group {}: a heap shared by {} ranks belongs to their group; use "
                    "group.subgroup({{rank}}) for a group of one",
                    options.name, heap.segment()->ranks())));
  }
  return make_shm_group(heap, std::make_shared<GroupFamily>(), {0, {0}}, std::move(options));
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
  check_divides(*this, name);
  return divide(*this, agree_on_id(*this, members, name), members, renamed(*this, name));
}

std::optional<Group> Group::split(int64_t colour, int64_t key, std::string_view name) const {
  check_divides(*this, name);
  const std::vector<SplitChoice> choices =
      gather_choices(*this, {next_id(*this), colour, key}, name);
  int64_t id = 0;
  std::vector<int> members;
  for (int rank = 0; rank < size(); ++rank) {
    id = std::max(id, choices[rank].next_id);
    if (choices[rank].colour == colour) members.push_back(rank);
  }
  if (colour < 0) return std::nullopt;
  std::ranges::stable_sort(members, {}, [&](int rank) { return choices[rank].key; });
  return divide(*this, static_cast<int>(id), members, renamed(*this, name));
}

std::optional<int> Group::translate(int rank, const Group& other) const {
  if (rank < 0 || rank >= size()) {
    throw Error(base::invalid_argument(
        fmt::format("group {}: rank {} is none of its {}", name(), rank, size())));
  }
  const std::vector<int>& mine = state_->members();
  const std::vector<int>& theirs = other.state_->members();
  if (mine.empty() || theirs.empty() || heap().segment() != other.heap().segment()) {
    throw Error(base::invalid_argument(
        fmt::format("groups {} and {} do not come from one group of shared memory, so their ranks "
                    "cannot be compared",
                    name(), other.name())));
  }
  const auto found = std::ranges::find(theirs, mine[rank]);
  if (found == theirs.end()) return std::nullopt;
  return static_cast<int>(found - theirs.begin());
}

Group regroup(const Group& group, GroupOptions options) {
  std::vector<int> all(group.size());
  std::iota(all.begin(), all.end(), 0);
  return regroup(group, all, std::move(options));
}

Group regroup(const Group& group, const std::vector<int>& members, GroupOptions options) {
  check_members(members, group.rank(), group.size(), options.name);
  check_divides(group, options.name);
  const int id = agree_on_id(group, members, options.name);
  return divide(group, id, members, std::move(options));
}

Group Group::survivors(std::chrono::nanoseconds deadline) const {
  if (state_->go_on()) return state_->go_on()(deadline);
  throw Error(base::unsupported(fmt::format(
      "group {}: engine {} does not support recovery from a failed rank; restart the job", name(),
      engine())));
}

void before_call(const Group& group, std::function<void()> action) {
  group.state()->family().before_call = std::move(action);
}

}  // namespace hanji::comm
