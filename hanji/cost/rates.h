#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hanji/base/status.h"
#include "hanji/cost/fitted.h"

namespace hanji::cost {

/// What this host does per second. The defaults are those of two modest cores, for use before
/// anything was measured.
struct Rates {
  /// Bytes read plus written per second by all ranks together, updating each other's tensors in
  /// place as an all_reduce does; tensors larger than the caches.
  double memory_bytes_per_second = 20e9;
  /// The same for tensors that stay in the caches.
  double cached_bytes_per_second = 60e9;
  /// One rank alone copying a large tensor: bytes read plus written per second.
  double copy_bytes_per_second = 10e9;
  /// All ranks meeting once.
  double sync_seconds = 1e-6;
  /// The last-level cache that the ranks share; a working set beyond it goes to memory.
  int64_t cache_bytes = int64_t{8} << 20;
  /// Costs fitted to calls of as many ranks; lists of other numbers of ranks are priced by the rates
  /// above.
  std::optional<FittedCosts> fitted = {};

  bool operator==(const Rates&) const = default;
};

std::string to_json(const Rates& rates);

/// Strict: all members, each a positive finite number, `fitted` where there is one, nothing else but
/// what older plans have.
/// Errors  corrupt names the member.
Result<Rates> rates_from_json(std::string_view text);

}  // namespace hanji::cost
