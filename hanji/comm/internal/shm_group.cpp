#include "hanji/comm/internal/shm_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "hanji/base/clock.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/internal/shm_engine.h"
#include "hanji/cost/select.h"
#include "hanji/shm/liveness.h"
#include "hanji/shm/survivors.h"

namespace hanji::comm {
namespace {

shm::EngineOptions engine_options_of(const GroupOptions& options, uint32_t epoch) {
  shm::EngineOptions engine;
  engine.epoch = epoch;
  engine.deadline = options.deadline;
  engine.usable_processors = options.usable_processors;
  engine.threads_per_rank = options.threads_per_rank;
  engine.recorder = options.recorder;
  return engine;
}

/// One channel per pair of ranks and direction, whatever groups they share: its two ends count its
/// messages, so a second one must not begin beside it.
std::shared_ptr<GroupState> open_channel(const Heap& heap,
                                         const std::shared_ptr<GroupFamily>& family,
                                         const ShmGroup& ends, GroupOptions options) {
  const int sender = ends.members[0];
  const int receiver = ends.members[1];
  const std::lock_guard lock(family->channels_mutex);
  auto& kept = family->channels[{sender, receiver}];
  if (auto open = kept.lock()) return open;
  options.name = fmt::format("{} {}->{}", options.name, shm::name_of_rank(*heap.segment(), sender),
                             shm::name_of_rank(*heap.segment(), receiver));
  auto engine = shm::Engine::create_channel(heap.segment(), sender, receiver, heap.rank(),
                                            engine_options_of(options, *ends.epoch));
  if (!engine.ok()) throw Error(engine.status().at("channel " + options.name));
  auto state = GroupState::make(std::make_unique<ShmEngine>(*std::move(engine), heap), heap,
                                std::move(options), family, nullptr);
  kept = state;
  return state;
}

GroupState::Connect make_connect(const Heap& heap, const std::shared_ptr<GroupFamily>& family,
                                 const ShmGroup& which, const GroupOptions& options) {
  using Kept = std::map<std::pair<int, int>, std::shared_ptr<GroupState>>;
  return [=, kept = std::make_shared<Kept>(),
          mutex = std::make_shared<std::mutex>()](const GroupState::Ends& ends) {
    const auto [sender, receiver] = std::pair(ends.sender, ends.receiver);
    const std::lock_guard lock(*mutex);
    auto& channel = (*kept)[{sender, receiver}];
    if (!channel) {
      channel =
          open_channel(heap, family,
                       {0, {which.members[sender], which.members[receiver]}, which.epoch}, options);
    }
    return channel;
  };
}

int next_id(GroupFamily& family) {
  const std::lock_guard lock(family.mutex);
  return family.next_id;
}

/// Meets until a group of the living has met: one may die on the way.
Group go_on(const Heap& heap, std::shared_ptr<GroupFamily> family, ShmGroup failed,
            const GroupOptions& options, std::chrono::nanoseconds deadline) {
  const auto limit = base::Deadline::after(deadline);
  while (true) {
    const shm::SurvivorOptions ask{failed.id,     failed.members,   heap.rank(),
                                   *failed.epoch, next_id(*family), limit.remaining()};
    const auto met = shm::agree_on_survivors(*heap.segment(), ask);
    if (!met.ok()) throw Error(met.status().at("group " + options.name));
    // What belongs to an epoch that ended, its channels too, is of no use to the new groups.
    if (met->epoch != *failed.epoch) family = std::make_shared<GroupFamily>();
    failed = {met->group_id, met->members, met->epoch};
    try {
      Group group = make_shm_group(heap, family, failed, options);
      barrier(group, {.label = "survivors", .deadline = limit.remaining()});
      return group;
    } catch (const Error& error) {
      if (error.code() != Code::kPeerLost) throw;
    }
  }
}

}  // namespace

Group make_shm_group(const Heap& heap, std::shared_ptr<GroupFamily> family, ShmGroup which,
                     GroupOptions options) {
  {
    const std::lock_guard lock(family->mutex);
    family->next_id = std::max(family->next_id, which.id + 1);
  }
  if (!which.epoch) which.epoch = heap.segment()->epoch();
  auto engine = shm::Engine::create(heap.segment(), which.id, which.members, heap.rank(),
                                    engine_options_of(options, *which.epoch));
  if (!engine.ok()) throw Error(engine.status().at("group " + options.name));
  auto divide = [heap, family, which](int id, const std::vector<int>& chosen,
                                      GroupOptions chosen_options) {
    ShmGroup part{id, {}, which.epoch};
    for (const int rank : chosen) part.members.push_back(which.members[rank]);
    return make_shm_group(heap, family, std::move(part), std::move(chosen_options));
  };
  if (!options.chooser) options.chooser = std::make_shared<cost::Chooser>(cost::Rates{});
  auto connect = make_connect(heap, family, which, options);
  GroupOptions kept = options;
  kept.rank_names = {};  // of ranks that may be gone
  Group group(GroupState::make(std::make_unique<ShmEngine>(*std::move(engine), heap), heap,
                               std::move(options), family, std::move(divide), std::move(connect)));
  group.state()->set_members(which.members);
  group.state()->set_go_on([heap, family, which, kept](std::chrono::nanoseconds deadline) {
    return go_on(heap, family, which, kept, deadline);
  });
  return group;
}

}  // namespace hanji::comm
