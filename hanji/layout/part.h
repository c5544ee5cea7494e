#pragma once

#include <cstdint>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layout/placement.h"
#include "hanji/layout/range.h"

namespace hanji::layout {

/// `count` runs of `size` elements whose begins are `stride` apart: a block of columns of a matrix is one
/// value for any number of rows.
struct StridedRange {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t stride = 0;  ///< At least `size`; 0 for a single run.
  int64_t count = 1;

  int64_t num_elements() const { return size * count; }
  Range run(int64_t index) const { return {begin + index * stride, begin + index * stride + size}; }
  /// From the first element to the last; what lies between the runs too.
  Range extent() const { return {begin, run(count - 1).end}; }
  bool operator==(const StridedRange&) const = default;
};

/// Elements of a part and the same elements of the whole: ranges of equal size and count.
struct PlacedRuns {
  StridedRange part, whole;
};

/// How the part of a tensor that one rank of an axis has lies in the whole tensor; both in C order.
class PartLayout {
 public:
  /// The part is the whole.
  static PartLayout whole(std::vector<int64_t> shape);
  /// Part `index` of `degree` of a tensor of `whole_shape`.
  /// Errors  kInvalidArgument: those of parts_of(); a dimension that the tensor does not have.
  static Result<PartLayout> create(const Placement& placement, std::vector<int64_t> whole_shape,
                                   int index, int degree);

  const std::vector<int64_t>& whole_shape() const { return whole_shape_; }
  const std::vector<int64_t>& shape() const { return shape_; }  ///< Of the part.
  int64_t num_elements() const { return rows_ * row_; }         ///< Of the part.

  /// `elements` of the part, each once: at most three values per segment of the placement, one for
  /// all elements of the part.
  std::vector<PlacedRuns> runs(Range elements) const;

 private:
  PartLayout() = default;
  /// Adds elements `window` of each of `count` rows of the part.
  void add_rows(int64_t first, int64_t count, Range window, std::vector<PlacedRuns>& found) const;

  std::vector<int64_t> whole_shape_, shape_;
  /// A row is what is contiguous in both between two cuts: the cut dimension and those inside it.
  int64_t rows_ = 1, row_ = 0, whole_row_ = 0;
  std::vector<Range> segments_;  ///< Elements of a row of the whole that make up one of the part.
};

/// The sizes of the parts of [0, size), by rank: those of part_of().
std::vector<int64_t> part_sizes(int64_t size, int64_t unit, int degree, int blocks = 1);

/// The shape of the tensor that a part of shape `part` is cut from.
/// Errors  kInvalidArgument for a cut that does not name its segments, or a dimension that there is not.
Result<std::vector<int64_t>> whole_shape(const Placement& placement, std::vector<int64_t> part);

}  // namespace hanji::layout
