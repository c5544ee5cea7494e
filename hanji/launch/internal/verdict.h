#pragma once

#include <string>
#include <string_view>

#include "hanji/base/status.h"

namespace hanji::launch {

/// Why a run on several hosts ends, as the hosts tell it to each other. The first one counts.
struct Verdict {
  int node = -1;      ///< Where it happened; -1: not known.
  int exit_code = 6;  ///< Of the run.
  std::string text;   ///< One line: who, where, why.

  bool operator==(const Verdict&) const = default;
};

std::string to_json(const Verdict& verdict);
/// Errors  kCorrupt for anything else.
Result<Verdict> parse_verdict(std::string_view json);

/// Keys of the store that hanji itself uses.
inline constexpr const char* kVerdictKey = "hanji/verdict";
inline constexpr const char* kSignalKey = "hanji/signal";  ///< A signal for all ranks.

}  // namespace hanji::launch
