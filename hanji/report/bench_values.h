#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hanji/report/bench_case.h"

namespace hanji::report {

/// Values repeat after so many elements: a prime, so that no block of another size looks alike.
inline constexpr int64_t kValuePeriod = 997;

/// What every rank puts in, and what is reduced from that: row r has the kValuePeriod values of
/// rank r, the last row the result. Whole numbers, small enough that every one of them, and every
/// partial result in any order, is exact in the call's dtype.
std::vector<double> value_table(const BenchCase& call);

/// A part of a rank's output that must be equal to a row of the table, repeated.
struct ExpectedPart {
  int64_t begin = 0;  ///< Elements from the start of the output.
  int64_t count = 0;
  int row = 0;
  int64_t phase = 0;  ///< Which value of the row comes first.
};
std::vector<ExpectedPart> expected_parts(const BenchCase& call, int rank);

/// A row of the table in the bytes of its dtype, to fill memory with and to compare it to.
class ValueTile {
 public:
  /// `row` has kValuePeriod elements of `element_bytes`.
  ValueTile(std::span<const std::byte> row, size_t element_bytes);

  void fill(std::byte* to, int64_t count, int64_t phase) const;
  /// Elements that differ in any bit.
  int64_t num_wrong(const std::byte* values, int64_t count, int64_t phase) const;

 private:
  size_t element_bytes_;
  std::vector<std::byte> bytes_;  // the row again and again: long enough to copy fast
};

}  // namespace hanji::report
