#pragma once

#include <cstdint>

#include "hanji/schedule/step_list.h"

namespace hanji::schedule::internal {

/// Bounds of every list, so that no sum or product of a checked list can overflow int64.
inline constexpr int64_t kMaxElements = int64_t{1} << 48;
inline constexpr int64_t kMaxGrains = int64_t{1} << 20;
inline constexpr int64_t kMaxSteps = int64_t{1} << 22;
inline constexpr int64_t kMaxOperands = int64_t{1} << 16;

}  // namespace hanji::schedule::internal
