#pragma once

#include <functional>
#include <memory>

#include "hanji/comm/internal/state.h"
#include "hanji/comm/internal/wire.h"

namespace hanji::comm {

/// What a group over a wire is made of beside its options.
struct MessageParts {
  std::unique_ptr<Wire> wire;
  /// A wire of two ranks, the sender and the receiver, beside the first one; called on both alone.
  std::function<std::unique_ptr<Wire>(int sender, int receiver)> open_channel;
  Heap heap = Heap::private_arena();
  GroupState::Divide divide;  ///< Null: the group cannot be divided.
};

/// A group whose ranks exchange messages: every routine, and send and recv.
Group make_message_group(MessageParts parts, GroupOptions options);

}  // namespace hanji::comm
