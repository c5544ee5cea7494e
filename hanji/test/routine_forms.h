#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hanji/schedule/step_list.h"

namespace hanji::test {

/// One routine in one of the ways in which ranks that share memory run it.
struct RoutineForm {
  std::string name;   ///< "all_reduce_staged", "uneven_gather_flat".
  int64_t count = 0;  ///< A small one that takes every kind of step.
  std::function<schedule::StepList(int64_t count, int root)> list;
};

/// Elements of a chunk in staged forms.
inline constexpr int64_t kFormChunk = 48;

/// Every routine, even and uneven, flat, direct and staged, for groups of 2 to 4 ranks.
std::vector<RoutineForm> routine_forms(int ranks);

/// Messages from rank 0 to rank 1, for channels.
std::vector<RoutineForm> message_forms();

}  // namespace hanji::test
