#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace hanji::comm {

/// What a collective says about itself besides its call site.
struct CallOptions {
  uint64_t tag = 0;  ///< Compared across ranks: tells equal-shaped calls apart, e.g. buckets.
  std::string_view label = {};  ///< Said in messages beside the call site, e.g. a parameter's name.
  /// How long this call may wait for a peer before its wait() throws kTimeout; 0: the group's.
  std::chrono::nanoseconds deadline{0};
};

}  // namespace hanji::comm
