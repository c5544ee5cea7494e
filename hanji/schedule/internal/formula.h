#pragma once

#include <cstdint>
#include <optional>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule::internal {

/// Sums over all ranks; syncs of one rank.
struct Totals {
  int64_t syncs = 0;
  int64_t steps = 0;  ///< Syncs included.
  int64_t read = 0;
  int64_t written = 0;
  int64_t wire = 0;

  bool operator==(const Totals&) const = default;
};

/// What the list holds.
Totals count_totals(const StepList& list);

/// What it must hold, from routine, algorithm, ranks, count and slot size alone; nothing for an
/// algorithm that is not of this folder.
std::optional<Totals> formula(const StepList& list);

}  // namespace hanji::schedule::internal
