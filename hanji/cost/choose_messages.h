#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/cost/select.h"
#include "hanji/cost/simulate.h"

namespace hanji::cost {

/// Links between processes of which nothing was measured: 10 Gbit/s, and what a message through the
/// kernel takes.
inline constexpr Network kAssumedNetwork = {.latency_seconds = 30e-6, .bytes_per_second = 1.25e9};

/// A call of ranks that send messages.
struct MessageQuery {
  Query query;  ///< Even shares; element_bytes is right, in_place is not served.
  /// Sums are those of schedule::pairwise_tree(), to the bit: no other order, and no rounding on the
  /// way, which 16-bit floats would show.
  bool needs_order = true;
  Network network;
  std::string_view named;  ///< Taken at any price; empty: the cheapest.
  int ranks_per_host = 0;  ///< 0: hierarchies are no candidates.
  /// As topology::order_ranks() says: neighbours in rings and trees. Empty: by rank. An order that
  /// would break what `needs_order` promises is not followed.
  std::vector<int> order = {};
};

/// A list and its simulated seconds.
struct MessageChoice {
  schedule::StepList list;
  double seconds = 0;  ///< 0 where a name left no choice.
};

/// Kept by a Chooser: which algorithm serves which size class.
std::shared_ptr<MessageTable> make_message_table();

/// All that keep what was promised, the cheapest first; with a name, that one alone.
/// Errors  unsupported where the routine has none that does; invalid_argument as check_named().
Result<std::vector<MessageChoice>> choose_messages(const MessageQuery& query);

}  // namespace hanji::cost
