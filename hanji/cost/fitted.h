#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/dtype.h"
#include "hanji/base/status.h"
#include "hanji/schedule/operation.h"

namespace hanji::cost {

/// Elements of a list that is priced: their size, their type where it is known, and where they lie.
/// A size alone stands for uint8, bfloat16, float32 or float64.
struct Element {
  Element(size_t size) : bytes(size) {}                             // NOLINT: a size is an element
  Element(DType type) : bytes(base::size_of(type)), dtype(type) {}  // NOLINT: so is a type
  Element(size_t size, std::optional<DType> type, bool heap = true)
      : bytes(size), dtype(type), in_heap(heap) {}

  size_t bytes;
  std::optional<DType> dtype;
  bool in_heap = true;  ///< The tensors; else in memory of the rank alone, whose pages are small.
};

/// Types whose reductions have a rate of their own; others take that of the same size.
inline constexpr std::array kFittedTypes = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                            DType::kFloat16, DType::kUInt8};
/// Where in kFittedTypes the rate of these elements stands.
size_t fitted_type(const Element& element);

/// Total bytes of a working set, of all ranks together; rates between two of them are interpolated
/// over the logarithm.
inline constexpr std::array<int64_t, 10> kLevelBytes = {
    int64_t{1} << 16, int64_t{1} << 18, int64_t{1} << 20, int64_t{1} << 21, int64_t{1} << 22,
    int64_t{1} << 23, int64_t{1} << 24, int64_t{1} << 25, int64_t{1} << 26, int64_t{1} << 27};

/// Seconds of one unit where the working set has one of these sizes.
struct Level {
  double read = 0;    ///< Per byte that the busiest processor reads.
  double write = 0;   ///< Per byte that it writes and has not read: staging, copies.
  double update = 0;  ///< Per byte that it reads and writes in place.
  double pass = 0;    ///< Per byte read of staging that another rank wrote: on top of `read`.
  double claim = 0;   ///< Per byte written to staging that another rank reads: on top of `write`.
  double others = 0;  ///< Per byte that all others touch meanwhile: the shared bus.
  /// Per byte of a result and operand after the first; by kFittedTypes.
  std::array<double, kFittedTypes.size()> combine = {};

  bool operator==(const Level&) const = default;
};

/// How far the terms were from what was measured, for one algorithm: prices are multiplied by it.
struct Correction {
  struct Point {
    int64_t bytes = 0;  ///< Of all tensors together.
    double factor = 1;
    bool operator==(const Point&) const = default;
  };
  schedule::Routine routine = schedule::Routine::kBarrier;
  std::string algorithm;
  DType dtype = DType::kFloat32;
  bool in_heap = true;        ///< Where the tensors lie.
  std::vector<Point> points;  ///< By rising bytes; interpolated over the logarithm.

  bool operator==(const Correction&) const = default;
};

/// What collectives of `ranks` ranks cost here: the terms of price_terms(), fitted to calls that
/// were timed (fit.h).
struct FittedCosts {
  int ranks = 0;
  int processors = 1;       ///< Of all ranks together.
  double call_seconds = 0;  ///< To begin and end a call.
  double sync_seconds = 0;  ///< All ranks meeting once, busy or yielding as this many do.
  double step_seconds = 0;  ///< Per copy and reduction of the busiest rank.
  double wake_seconds = 0;  ///< Per meeting for which some rank waits while others move bytes.
  std::array<Level, kLevelBytes.size()> levels = {};
  /// Of the algorithms that were timed; any other list costs what the terms say.
  std::vector<Correction> corrections = {};
  double median_error = 0;  ///< |terms / measured - 1| over the calls that were fitted.
  double worst_error = 0;

  bool operator==(const FittedCosts&) const = default;
};

/// The factor for one call, whose tensors have `bytes` together: that of its placement and type,
/// else that of float32 there, else those of the heap, else 1.
double correction_of(const FittedCosts& costs, schedule::Routine routine,
                     std::string_view algorithm, const Element& element, double bytes);

std::string to_json(const FittedCosts& costs);

/// Strict: all members, finite and not negative, nothing else.
/// Errors  corrupt names the member.
Result<FittedCosts> fitted_from_json(std::string_view text);

/// The unknowns of FittedCosts in one order, and back: call, sync, step, wake, then level by level
/// read, write, update, pass, claim, others, combine.
inline constexpr size_t kCommonUnknowns = 4;
inline constexpr size_t kLevelUnknowns = 6 + kFittedTypes.size();
inline constexpr size_t kUnknowns = kCommonUnknowns + kLevelUnknowns * kLevelBytes.size();
std::vector<double> unknowns_of(const FittedCosts& costs);
void set_unknowns(FittedCosts& costs, std::span<const double> values);

}  // namespace hanji::cost
