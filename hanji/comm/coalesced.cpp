#include "hanji/comm/coalesced.h"

#include <fmt/format.h>

#include <utility>

#include "hanji/comm/internal/state.h"
#include "hanji/comm/internal/unit.h"

namespace hanji::comm {

Coalesced::Coalesced(Group group, std::source_location call_site)
    : group_(std::move(group)), unit_(std::make_shared<Unit>(call_site)) {
  if (group_.state()->open_unit(unit_)) return;
  throw Error(base::invalid_argument(fmt::format(
      "group {}: a unit of calls is open already; submit it before the next", group_.name())));
}

Coalesced::~Coalesced() {
  if (unit_) close();
}

Work Coalesced::submit() {
  if (!unit_) {
    throw Error(base::invalid_argument(
        fmt::format("group {}: this unit has been submitted", group_.name())));
  }
  close();
  const auto unit = std::exchange(unit_, nullptr);
  unit->submit(group_.state());
  return Work(unit);
}

void Coalesced::close() { group_.state()->close_unit(); }

Work coalesce(const Group& group, const std::function<void()>& calls,
              std::source_location call_site) {
  Coalesced unit(group, call_site);
  calls();
  return unit.submit();
}

}  // namespace hanji::comm
