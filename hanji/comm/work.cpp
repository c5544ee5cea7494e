#include "hanji/comm/work.h"

#include <utility>

#include "hanji/comm/internal/state.h"

namespace hanji::comm {

Work::Work(std::shared_ptr<GroupState> group, uint64_t ticket)
    : group_(std::move(group)), ticket_(ticket) {}

void Work::wait() {
  if (group_) group_->wait(ticket_);
}

bool Work::done() { return !group_ || group_->done(ticket_); }

void Work::then(std::function<void(const Status&)> told) {
  if (group_) {
    group_->then(ticket_, std::move(told));
  } else {
    told({});
  }
}

}  // namespace hanji::comm
