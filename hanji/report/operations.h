#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"

namespace hanji::report {

/// One kind of operation in one layer and phase of the profiled steps of a rank: sums over its calls.
struct OperationRow {
  std::string operation;  ///< "aten::mm", "hanji::attention"; kBetweenOperations.
  int64_t layer = -1;     ///< -1: of none, or not known.
  std::string phase;      ///< "forward", "recompute", "backward", "optimizer", ...
  int64_t calls = 0;
  double seconds = 0;        ///< Without operations within it.
  double flops = 0;          ///< 0: it moves bytes.
  int64_t bytes = 0;         ///< Each operand once: caches make it less or more.
  int64_t memory_bytes = 0;  ///< The most bytes of tensors after a call.
  bool operator==(const OperationRow&) const = default;
};

/// What is left of a step where no operation runs: the framework, hooks, and the observer itself.
inline constexpr std::string_view kBetweenOperations = "(between operations)";

/// What the threads of a rank can do at most, as the plan has measured it while all ranks are busy.
struct Roof {
  double flops_per_second = 0;  ///< 0: not measured.
  double bytes_per_second = 0;
  bool operator==(const Roof&) const = default;
};

/// The profiled steps of one rank.
struct OperationsRecord {
  int rank = 0;
  int ranks = 1;
  int64_t first_step = 1, last_step = 1;  ///< Counted from 1.
  int threads = 1;
  Roof roof;
  double seconds = 0;  ///< The profiled steps together.
  double waits = 0;    ///< The part of these for samples, other ranks and bytes.
  /// Medians of the profiled steps and of up to 10 others on each side; nothing where there are none.
  double step_seconds = 0;
  std::optional<double> other_step_seconds = {};
  std::vector<OperationRow> rows;
  bool operator==(const OperationsRecord&) const = default;

  int64_t num_steps() const { return last_step - first_step + 1; }
};

inline constexpr int kOperationsFormat = 1;
/// "operations/rank.N.jsonl"
std::filesystem::path operations_file(int rank);

/// A header and one line a row.
std::string to_jsonl(const OperationsRecord& record);
/// Errors  corrupt, naming the line.
Result<OperationsRecord> operations_from_jsonl(std::string_view text);
/// Those that lie in the folder of a run, by rank; none where nothing was profiled.
/// Errors  corrupt, naming file and line.
Result<std::vector<OperationsRecord>> read_operations(const std::filesystem::path& folder);

/// Rows of one operation and phase of all layers together, the longest first.
std::vector<OperationRow> by_operation(const OperationsRecord& record);

/// How a row stands to the roof.
struct RoofPoint {
  double flops_per_byte = 0;
  double flops_per_second = 0;
  double bytes_per_second = 0;
  /// The share of the roof at this intensity; of the bandwidth for what has no flops. Above 1: it is counted wrongly, or its
  /// operands lie in caches. Nothing where the roof or the time is not known.
  std::optional<double> share = {};
};
RoofPoint roof_point(const OperationRow& row, const Roof& roof);

/// What took longest, with share of the steps, flop/byte, rate and share of the roof; then what profiling cost and
/// which points lie above the roof.
std::string operations_text(const OperationsRecord& record, size_t rows, int columns);

}  // namespace hanji::report
