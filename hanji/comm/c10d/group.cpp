#include "hanji/comm/c10d/group.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "hanji/comm/c10d/internal/backend_engine.h"
#include "hanji/comm/internal/state.h"

namespace hanji::comm::c10d {

Group make_group(c10::intrusive_ptr<::c10d::Backend> backend, GroupOptions options) {
  return make_group(std::move(backend), Heap::private_arena(), nullptr, std::move(options));
}

Group make_group(c10::intrusive_ptr<::c10d::Backend> backend, Heap heap, Divide divide,
                 GroupOptions options) {
  auto engine = std::make_unique<BackendEngine>(std::move(backend), options);
  return Group(GroupState::make(std::move(engine), std::move(heap), std::move(options),
                                std::make_shared<GroupFamily>(), std::move(divide)));
}

}  // namespace hanji::comm::c10d
