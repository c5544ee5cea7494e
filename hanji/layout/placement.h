#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hanji/base/status.h"
#include "hanji/layout/range.h"

namespace hanji::layout {

/// How a tensor lies on one axis of a mesh: whole on every rank, or cut along a dimension.
struct Placement {
  static constexpr int64_t kWhole = -1;

  int64_t dim = kWhole;
  /// Sizes along `dim` that are cut one by one: {C, C, C} gives every rank its part of q, of k and of
  /// v. Empty: the dimension is one segment.
  std::vector<int64_t> segments = {};
  /// A cut falls on its multiples within each segment (the width of a head), in a segment n times as
  /// long as the shortest on those of n units (queries whose heads share keys and values); what is left
  /// over belongs to the last rank.
  int64_t unit = 1;
  /// Above 1: the units of each segment make up so many blocks, and a rank has whole ones, so that what
  /// is computed block by block does not depend on the number of ranks.
  int blocks = 1;

  bool is_cut() const { return dim != kWhole; }
  bool operator==(const Placement&) const = default;
};

/// The blocks that each of `degree` ranks owns: as many as the others, and the first ranks one more each
/// of those left over.
/// Order   blocks at least degree.
std::vector<Range> block_owners(int blocks, int degree);

/// Part `index` of [0, size) cut into `degree`: of n units those from floor(index n / degree) up to
/// floor((index + 1) n / degree). With `blocks` above 1 the units are cut into blocks so, and a part is
/// what its rank owns of them.
///
/// Result  contiguous, in order, covering [0, size); their sizes differ by a unit (or a block), or by the
///         rest that the last takes.
/// Order   index in [0, degree), unit >= 1, size >= 0, blocks 1 or at least degree.
Range part_of(int64_t size, int64_t unit, int index, int degree, int blocks = 1);

/// The index of the part that is as large as any where blocks are, and no unit has a rest.
int largest_part(int degree, int blocks);

/// What a rank holds along the cut dimension: a range of the whole in each segment, in order.
///
/// Errors  kInvalidArgument, naming the sizes: segments that do not make up `size`, or a segment with
///         fewer units than ranks or blocks, with the most that it allows; fewer blocks than ranks.
Result<std::vector<Range>> parts_of(const Placement& placement, int64_t size, int index,
                                    int degree);

/// Placements by the names of parameters; the first pattern that fits is taken.
struct NamedPlacement {
  std::string pattern;  ///< "*" stands for any run of characters.
  Placement placement;
};
using PlacementTable = std::vector<NamedPlacement>;

/// Errors  kNotFound, naming the parameter and the patterns there are: what no rule names is not
///         taken for whole.
Result<Placement> placement_of(const PlacementTable& table, std::string_view parameter);

/// What one rank of an axis has of a model's parameters.
struct Cut {
  PlacementTable placements = {};  ///< Those that cut name all their segments.
  int index = 0;
  int degree = 1;  ///< 1: the parameters are whole, whatever the table says.
};

}  // namespace hanji::layout
