#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/cli/command_line.h"
#include "hanji/cost/compare.h"

namespace hanji::cli {

inline constexpr const char* kDefaultSize = "1MB";

/// The flags of verbs that look at one collective (simulate, explain), as they were typed.
struct CollectiveOptions {
  std::string routine;
  std::string bytes;
  std::string bandwidth;  ///< Empty: nothing was said.
  std::string latency;
  std::string reduce;  ///< Bytes added per second; empty: no time.
  std::string chunk;   ///< Of a pipeline; instead of segments.
  std::string algorithm;
  int ranks = 8;
  int root = 0;
  int segments = 0;
  int ranks_per_host = 0;
  bool explains = false;  ///< Takes barrier and send too, which have no choice of messages.
  std::vector<std::string> verbs = {};  ///< Verbs that a misspelled routine may mean.

  /// Adds the flags that both verbs have, and the routine. The object must outlive the parsing.
  void add_to(Verb verb);

  /// What they ask; without a size, of kDefaultSize where bytes move.
  /// Errors  throws Error (invalid_argument) that names each wrong flag and a way out.
  cost::Question question() const;
  /// The algorithm that was named, one of the routine's; nothing if none was.
  std::optional<schedule::Algorithm> named_algorithm() const;
};

/// "1MB/s", "12.5 GiB/s", "10Gbit/s", in bytes per second. Errors: invalid_argument.
Result<double> parse_rate(std::string_view text);

}  // namespace hanji::cli
