#include "hanji/comm/coalesced.h"

#include <fmt/format.h>

#include <utility>

#include "hanji/comm/internal/call_batch.h"
#include "hanji/comm/internal/state.h"

namespace hanji::comm {

Coalesced::Coalesced(Group group, std::source_location call_site)
    : group_(std::move(group)), batch_(std::make_shared<CallBatch>(call_site)) {
  if (group_.state()->open_batch(batch_)) return;
  throw Error(base::invalid_argument(fmt::format(
      "group {}: a batch of calls is open already; submit it before the next", group_.name())));
}

Coalesced::~Coalesced() {
  if (batch_) close();
}

Work Coalesced::submit() {
  if (!batch_) {
    throw Error(base::invalid_argument(
        fmt::format("group {}: this batch has been submitted", group_.name())));
  }
  close();
  const auto batch = std::exchange(batch_, nullptr);
  batch->submit(group_.state());
  return Work(batch);
}

void Coalesced::close() { group_.state()->close_batch(); }

Work coalesce(const Group& group, const std::function<void()>& calls,
              std::source_location call_site) {
  Coalesced batch(group, call_site);
  calls();
  return batch.submit();
}

}  // namespace hanji::comm
