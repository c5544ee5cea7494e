#include "hanji/comm/internal/message_group.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hanji/comm/internal/message_engine.h"
#include "hanji/comm/internal/ring_order.h"

namespace hanji::comm {
namespace {

/// By default names are numbers.
bool are_given(const RankNames& ends) {
  return ends.of(0) != std::to_string(0) || ends.of(1) != std::to_string(1);
}

/// The channels of one group, made when they are first used and kept while it, or a group that came
/// out of it, lives.
class Channels {
 public:
  using Open = std::function<std::unique_ptr<Wire>(int sender, int receiver)>;

  Channels(Open open, Heap heap, GroupOptions options, std::shared_ptr<GroupFamily> family)
      : open_(std::move(open)),
        heap_(std::move(heap)),
        options_(std::move(options)),
        family_(std::move(family)) {}

  std::shared_ptr<GroupState> find(const GroupState::Ends& ends) {
    const auto& [sender, receiver, told] = ends;
    const std::lock_guard lock(mutex_);
    auto& channel = kept_[{sender, receiver}];
    if (channel) return channel;
    GroupOptions options = options_;
    options.name = fmt::format("{} {}->{}", options_.name, sender, receiver);
    const RankNames& names = options_.rank_names;
    options.rank_names = are_given(told) ? told : RankNames({names.of(sender), names.of(receiver)});
    auto engine = std::make_unique<MessageEngine>(open_(sender, receiver), options);
    channel = GroupState::make(std::move(engine), heap_, std::move(options), family_, nullptr);
    channel->set_job_ranks({sender, receiver});
    return channel;
  }

 private:
  const Open open_;
  const Heap heap_;
  const GroupOptions options_;
  const std::shared_ptr<GroupFamily> family_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::shared_ptr<GroupState>> kept_;
};

}  // namespace

Group make_message_group(MessageParts parts, GroupOptions options) {
  auto family = std::make_shared<GroupFamily>();
  auto channels =
      std::make_shared<Channels>(std::move(parts.open_channel), parts.heap, options, family);
  auto connect = [channels](const GroupState::Ends& ends) { return channels->find(ends); };
  std::vector<int> order = ring_order(*parts.wire, options.deadline);
  auto engine = std::make_unique<MessageEngine>(std::move(parts.wire), options, std::move(order));
  return Group(GroupState::make(std::move(engine), std::move(parts.heap), std::move(options),
                                std::move(family), std::move(parts.divide), std::move(connect)));
}

}  // namespace hanji::comm
