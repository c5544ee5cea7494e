#include "hanji/layout/part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace hanji::layout {
namespace {

int64_t product(std::vector<int64_t>::const_iterator begin,
                std::vector<int64_t>::const_iterator end) {
  return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
}

Status check_dim(const Placement& placement, const std::vector<int64_t>& shape) {
  if (placement.dim >= 0 && placement.dim < std::ssize(shape)) return {};
  return base::invalid_argument(
      fmt::format("a placement cuts dimension {}, and the tensor's shape is [{}]; name one of its "
                  "dimensions",
                  placement.dim, fmt::join(shape, ", ")));
}

}  // namespace

PartLayout PartLayout::whole(std::vector<int64_t> shape) {
  PartLayout made;
  made.row_ = made.whole_row_ = product(shape.begin(), shape.end());
  made.segments_ = {{0, made.row_}};
  made.shape_ = made.whole_shape_ = std::move(shape);
  return made;
}

Result<PartLayout> PartLayout::create(const Placement& placement, std::vector<int64_t> whole_shape,
                                      int index, int degree) {
  if (!placement.is_cut() || degree == 1) return whole(std::move(whole_shape));
  HANJI_RETURN_IF_ERROR(check_dim(placement, whole_shape));
  const auto dim = whole_shape.begin() + placement.dim;
  HANJI_ASSIGN_OR_RETURN(const auto parts, parts_of(placement, *dim, index, degree));
  const int64_t inside = product(dim + 1, whole_shape.end());
  PartLayout made;
  int64_t size = 0;
  for (const Range part : parts) {
    made.segments_.push_back({part.begin * inside, part.end * inside});
    size += part.size();
  }
  made.rows_ = product(whole_shape.begin(), dim);
  made.row_ = size * inside;
  made.whole_row_ = *dim * inside;
  made.shape_ = whole_shape;
  made.shape_[static_cast<size_t>(placement.dim)] = size;
  made.whole_shape_ = std::move(whole_shape);
  return made;
}

void PartLayout::add_rows(int64_t first, int64_t count, Range window,
                          std::vector<PlacedRuns>& found) const {
  const auto strided = [count](int64_t begin, int64_t size, int64_t stride) {
    return StridedRange{begin, size, count > 1 ? stride : 0, count};
  };
  int64_t begin = 0;  // of the segment in a row of the part
  for (const Range segment : segments_) {
    const int64_t from = std::max(window.begin - begin, int64_t{0});
    const int64_t size = std::min(window.end - begin, segment.size()) - from;
    if (size > 0) {
      found.push_back({strided(first * row_ + begin + from, size, row_),
                       strided(first * whole_row_ + segment.begin + from, size, whole_row_)});
    }
    begin += segment.size();
  }
}

std::vector<PlacedRuns> PartLayout::runs(Range elements) const {
  std::vector<PlacedRuns> found;
  if (elements.empty()) return found;
  int64_t first = elements.begin / row_;
  const int64_t last = elements.end / row_;
  const int64_t head = elements.begin % row_;
  const int64_t tail = elements.end % row_;
  if (first == last) {
    add_rows(first, 1, {head, tail}, found);
    return found;
  }
  if (head > 0) add_rows(first++, 1, {head, row_}, found);
  if (first < last) add_rows(first, last - first, {0, row_}, found);
  if (tail > 0) add_rows(last, 1, {0, tail}, found);
  return found;
}

std::vector<int64_t> part_sizes(int64_t size, int64_t unit, int degree, int blocks) {
  std::vector<int64_t> sizes;
  for (int index = 0; index < degree; ++index) {
    sizes.push_back(part_of(size, unit, index, degree, blocks).size());
  }
  return sizes;
}

Result<std::vector<int64_t>> whole_shape(const Placement& placement, std::vector<int64_t> part) {
  if (!placement.is_cut()) return part;
  HANJI_RETURN_IF_ERROR(check_dim(placement, part));
  if (placement.segments.empty()) {
    return base::invalid_argument(fmt::format(
        "a placement that cuts dimension {} names no segments, so the size of the whole "
        "is unknown; give their sizes",
        placement.dim));
  }
  part[static_cast<size_t>(placement.dim)] =
      std::accumulate(placement.segments.begin(), placement.segments.end(), int64_t{0});
  return part;
}

}  // namespace hanji::layout
