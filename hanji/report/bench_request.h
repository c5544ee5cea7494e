#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/report/bench_case.h"

namespace hanji::report {

/// Where our own ranks' tensors lie.
enum class BenchPlacement : uint8_t { kHeap, kPrivate };
std::string_view name_of(BenchPlacement placement);

/// What a bench asks of every rank of a side at once, in one line of words:
///
///   measure ROUTINE COUNT DTYPE OP ROOT IN_PLACE REFILL SLOTS SCRUB CALLS WARMUP CHECK ENGINE
///           PLACEMENT CORRUPT TABLE
///
/// Peers in C and Python read the same line; ENGINE, PLACEMENT and CORRUPT are for our ranks.
struct BenchRequest {
  BenchCase call;
  bool refill = true;        ///< Writes the input anew before every call.
  int64_t slots = 1;         ///< Buffers that calls use one after another.
  int64_t scrub_bytes = 0;   ///< Written before the first call, to empty the caches.
  int64_t calls = 1;         ///< Timed.
  int64_t warmup = 0;        ///< Not timed, before them.
  bool check = false;        ///< Compares the last result; with refill only.
  std::string engine = "-";  ///< "shm", "gloo", "c10d_gloo".
  BenchPlacement placement = BenchPlacement::kHeap;
  int corrupt = -1;   ///< The rank that spoils an element before it compares; -1: none.
  std::string table;  ///< File of value_table(), as doubles.

  std::string to_line() const;
};

/// The inverse, but for call.bytes, which is that of whole shares, and call.ranks, which the
/// processes know by themselves.
/// Errors  kInvalidArgument with the line.
Result<BenchRequest> parse_request(std::string_view line, int ranks);

/// What a rank answers, in one line: "SECONDS SECONDS ... wrong N", or "error WHY".
struct BenchAnswer {
  std::vector<double> seconds{};
  int64_t wrong = 0;
  std::string error{};

  std::string to_line() const;
};
/// Errors  kCorrupt with the line's begin.
Result<BenchAnswer> parse_answer(std::string_view line);

/// Which rank's time is a call's, as nccl-tests' -a has it.
enum class Average : uint8_t { kRank0, kMean, kMin, kMax };

/// One time per call out of one row per rank.
std::vector<double> over_ranks(const std::vector<BenchAnswer>& answers, Average average);

}  // namespace hanji::report
