#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/base/terminal.h"
#include "hanji/cost/compare.h"
#include "hanji/cost/price.h"
#include "hanji/cost/rates.h"
#include "hanji/cost/terms.h"

namespace hanji::report {

/// One algorithm's line of a table.
struct CollectiveRow {
  std::string algorithm;    ///< As in a step list.
  int segments = 0;         ///< 0: no pipeline.
  int64_t steps = 0;        ///< Of the rank that has the most.
  int64_t moved_bytes = 0;  ///< By the busiest rank: sent, or in shared memory read and written.
  cost::Terms terms;
  std::string formula;  ///< Seconds for a power of two of ranks; empty in shared memory.
  std::vector<cost::Part> parts = {};  ///< What a fitted price is made of, the largest first.
};

/// From `from_bytes` on this algorithm is the fastest.
struct FastestFrom {
  int64_t from_bytes = 0;
  std::string algorithm;
};

/// What every algorithm of a routine costs somewhere.
struct CollectiveCost {
  schedule::Routine routine = schedule::Routine::kBroadcast;
  int64_t bytes = 0;  ///< As in cost::Question.
  int ranks = 0;
  std::string where;                ///< "over links of 1 MB/s each way, no latency"
  std::vector<CollectiveRow> rows;  ///< The fastest first.
  std::vector<FastestFrom> sizes;   ///< Who is the fastest for which size; empty for a barrier.
  std::string sizes_where;          ///< Where `sizes` holds, if not as `where` says; else empty.
  /// An algorithm whose list is too long for `sizes`, and its steps on all ranks.
  struct LeftOut {
    std::string algorithm;
    int64_t steps = 0;
  };
  std::vector<LeftOut> left_out;
  std::string chosen =
      {};  ///< What is taken and why, where that is not the first row; `sizes` then has
           ///< what is taken.
};

/// The two of a send, whatever the ranks of its group; else all.
int priced_ranks(const cost::Question& question);

/// The largest size that `sizes` looks at on a network.
inline constexpr int64_t kLargestSize = 1'000'000'000;
/// In shared memory, where a list has steps for each piece of a message.
inline constexpr int64_t kLargestSizeInMemory = 100'000'000;
/// The most that cost_in_memory() takes.
inline constexpr int64_t kMaxBytesInMemory = 1'000'000'000;
/// Where a network has no latency, small messages have nothing to lose; `sizes` takes this one.
inline constexpr double kExampleLatency = 1e-3;

/// By simulation of all algorithms that send messages; of a send by its one message.
/// Errors  as cost::answers(); unsupported for a barrier, which has no messages of its own.
Result<CollectiveCost> cost_on_network(const cost::Question& question);

/// Refuses what cost_in_memory() would, before rates are measured for it.
/// Errors  unsupported for a tree_reduce; invalid_argument for more bytes than the constant above says, or more ranks than a host has.
Status check_in_memory(const cost::Question& question);

/// By the prices of the lists for ranks that share memory. Elements are floats.
/// Errors  as check_in_memory().
Result<CollectiveCost> cost_in_memory(const cost::Question& question, const cost::Rates& rates);

/// "chain, 50 segments".
std::string label_of(const CollectiveRow& row);
/// Why the second lost against the first, by terms; empty where there is no second.
std::string why(const CollectiveCost& cost);

/// What the columns and the letters of formulas mean, a line for each.
std::string symbols_of(const CollectiveCost& cost);
/// A table with a line per algorithm, symbols_of(), why(), and the sizes.
std::string to_text(const CollectiveCost& cost, int columns = base::kTerminalColumns);
/// {"routine", "bytes", "ranks", "where", "algorithms": [...], "left_out": [...], "sizes": [...], "why"}.
std::string to_json(const CollectiveCost& cost);

/// Four significant digits: "8.75 s", "4.375 s", "120 us".
std::string exact_seconds(double seconds);

}  // namespace hanji::report
