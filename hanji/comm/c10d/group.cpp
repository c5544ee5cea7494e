#include "hanji/comm/c10d/group.h"

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "hanji/comm/c10d/internal/backend_wire.h"
#include "hanji/comm/internal/message_group.h"

namespace hanji::comm::c10d {

Group make_group(c10::intrusive_ptr<::c10d::Backend> backend, GroupOptions options) {
  return make_group(std::move(backend), Heap::private_arena(), nullptr, std::move(options));
}

Group make_group(c10::intrusive_ptr<::c10d::Backend> backend, Heap heap, Divide divide,
                 GroupOptions options) {
  auto shared = std::make_shared<SharedBackend>(std::move(backend));
  MessageParts parts{.wire = std::make_unique<BackendWire>(shared),
                     .open_channel =
                         [shared](int sender, int receiver) {
                           return std::make_unique<BackendWire>(shared, sender, receiver);
                         },
                     .heap = std::move(heap),
                     .divide = std::move(divide)};
  return make_message_group(std::move(parts), std::move(options));
}

}  // namespace hanji::comm::c10d
