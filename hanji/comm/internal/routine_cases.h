#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "hanji/comm/group.h"

namespace hanji::comm::internal {

/// What every engine must do, whatever carries its bytes. For tests of groups that are not over
/// shared memory; `check` is called on every rank and expects closed forms of the results.
struct RoutineCase {
  std::string_view name;
  void (*check)(const Group& group, int64_t count);
};

std::span<const RoutineCase> routine_cases();

/// Every case on every rank, for no element, few and many.
void check_routines(const Group& group);

}  // namespace hanji::comm::internal
