#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/plan/plan.h"

namespace hanji::report {

/// What a run found out; medians per step of the slowest rank. Absent: nobody measured it.
struct Measured {
  std::optional<double> step_seconds;
  std::optional<double> compute_seconds;
  std::optional<double> transfer_seconds;          ///< Bytes of collectives moved.
  std::optional<double> exposed_transfer_seconds;  ///< Of it, while the rank did nothing else,
  std::optional<double> hidden_transfer_seconds;   ///< and while it computed.
  std::optional<double> skew_seconds;              ///< Waiting for slower ranks.
  std::optional<double> data_seconds;
  std::optional<double> thread_reads_per_second;  ///< Samples that one thread reads.
  std::optional<double> tokens_per_second;
  std::optional<int64_t> peak_bytes_per_rank;      ///< Peak of tensors,
  std::optional<int64_t> gpu_peak_bytes_per_rank;  ///< of those on a GPU alone,
  std::optional<int64_t> gpu_reserved_bytes;       ///< and what their allocator took from it.
  std::optional<int64_t>
      process_bytes_per_rank;  ///< Before the first tensor, without mapped files.
  std::optional<int64_t> resident_bytes_per_rank;  ///< The most in memory at once, of everything.
  std::optional<int64_t> wire_bytes_per_step;
  std::optional<int64_t> collectives_per_step;
  std::optional<int64_t> network_bytes_per_step;  ///< Told where there are several hosts.
  std::vector<plan::MemoryLine> memory;  ///< Counted bytes by the plan's categories; any of them.
  /// Of the same ranks, what the plan predicted; empty: plan.memory.
  std::vector<plan::MemoryLine> planned_memory = {};
  /// Tokens per second of the same job on one rank, if that was run.
  std::optional<double> one_rank_tokens_per_second;
};

enum class Unit : uint8_t { kSeconds, kBytes, kCount, kPerSecond };

/// One quantity of the plan beside the run.
struct Comparison {
  std::string name;  ///< As in summary.json: "step_seconds", "memory.activations".
  Unit unit = Unit::kSeconds;
  std::optional<double> predicted;  ///< Absent: a plan cannot know it.
  std::optional<double> measured;
  /// predicted / measured - 1; 0 if both are 0. Absent where nothing was predicted, or nothing or 0
  /// was measured.
  std::optional<double> error() const;
};

/// Every line that the plan predicted, in the order of its table, and the skew.
std::vector<Comparison> compare(const plan::Plan& plan, const Measured& measured);

/// A line as people read it; what was not predicted or not measured is "-".
struct ComparisonRow {
  std::string name, predicted, measured, error;
  std::string of_step;  ///< By how much of a step a time was missed; empty for others.
};
std::vector<ComparisonRow> rows_of(const std::vector<Comparison>& comparisons,
                                   const std::optional<double>& step_seconds);

/// What more ranks brought.
struct Scaling {
  double speed_up = 0;    ///< Tokens per second over those of one rank.
  double efficiency = 0;  ///< speed_up over the number of ranks.
};

/// Absent unless both rates are known and above 0.
std::optional<Scaling> scaling(const plan::Plan& plan, const Measured& measured);

/// The plan's table with measured numbers and errors, of times also as a part of the measured step; at
/// most 80 columns of ASCII. What was not measured shows "-".
std::string table(const plan::Plan& plan, const Measured& measured);

/// The object "prediction" of summary.json:
/// {"step_seconds": {"predicted": 0.05, "measured": 0.06, "error": -0.16}, ...}; null for absent.
std::string to_json(const std::vector<Comparison>& comparisons);
/// What to_json() was given; units by the names. Members that are no such line are left out.
std::vector<Comparison> comparisons_from_json(std::string_view json);

}  // namespace hanji::report
