#include "hanji/layout/part.h"

#include <gmock/gmock.h>

#include <numeric>

namespace hanji::layout {
namespace {

using Shape = std::vector<int64_t>;

struct PartCase {
  Shape whole;
  Placement placement;
  int degree;
};

/// Any dimension, several segments, uneven parts, units with a rest, empty dimensions.
std::vector<PartCase> part_cases() {
  return {{{7}, {0, {7}}, 3},
          {{65, 4}, {0, {65}}, 4},
          {{18, 5}, {0, {6, 6, 6}, 2}, 3},
          {{5, 18}, {1, {6, 6, 6}, 2}, 3},
          {{5, 18}, {1, {4, 14}, 2}, 2},
          {{20, 3}, {0, {12, 4, 4}, 2}, 2},
          {{3, 7, 2}, {1, {7}}, 2},
          {{3, 4, 5}, {2, {5}}, 5},
          {{2, 3, 11, 2}, {2, {8, 3}}, 3},
          {{4, 100}, {1, {100}, 16}, 2},
          {{0, 6}, {1, {6}}, 2},
          {{6, 0}, {0, {6}}, 2},
          {{3, 4}, {}, 2},
          {{}, {}, 2}};
}

int64_t numel(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// By coordinates: the element of the whole that each of a part is, in the part's C order.
std::vector<int64_t> elements_by_coordinates(const PartCase& of, int index) {
  std::vector<int64_t> strides(of.whole.size(), 1);
  for (size_t d = of.whole.size(); d-- > 1;) strides[d - 1] = strides[d] * of.whole[d];
  std::vector<int64_t> elements = {0};
  for (size_t d = 0; d < of.whole.size(); ++d) {
    std::vector<Range> ranges = {{0, of.whole[d]}};
    if (of.placement.dim == static_cast<int64_t>(d)) {
      ranges = parts_of(of.placement, of.whole[d], index, of.degree).or_throw();
    }
    std::vector<int64_t> finer;
    for (const int64_t element : elements) {
      for (const Range range : ranges) {
        for (int64_t i = range.begin; i < range.end; ++i) finer.push_back(element + i * strides[d]);
      }
    }
    elements = std::move(finer);
  }
  return elements;
}

PartLayout layout_of(const PartCase& of, int index) {
  return PartLayout::create(of.placement, of.whole, index, of.degree).or_throw();
}

TEST(PartLayout, HasTheElementsOfItsCoordinatesForAnyRange) {
  for (const PartCase& of : part_cases()) {
    for (int index = 0; index < of.degree; ++index) {
      const PartLayout part = layout_of(of, index);
      const std::vector<int64_t> expected = elements_by_coordinates(of, index);
      const auto size = std::ssize(expected);
      ASSERT_EQ(part.num_elements(), size);
      const size_t segments = std::max<size_t>(1, of.placement.segments.size());
      EXPECT_LE(part.runs({0, size}).size(), segments);
      for (int64_t begin = 0; begin < size; begin += 1 + size / 40) {
        for (int64_t end = begin; end <= size; end += 1 + size / 40) {
          std::vector<int64_t> found(static_cast<size_t>(size), -1);
          const auto runs = part.runs({begin, end});
          EXPECT_LE(runs.size(), 3 * segments);
          for (const PlacedRuns& one : runs) {
            for (int64_t k = 0; k < one.part.count; ++k) {
              for (int64_t i = 0; i < one.part.size; ++i) {
                const auto at = static_cast<size_t>(one.part.run(k).begin + i);
                ASSERT_EQ(found.at(at), -1) << "once";
                found[at] = one.whole.run(k).begin + i;
              }
            }
          }
          for (int64_t i = 0; i < size; ++i) {
            ASSERT_EQ(found[i], i >= begin && i < end ? expected[i] : -1) << begin << " " << end;
          }
        }
      }
    }
  }
}

TEST(PartLayout, PartsOfAllRanksTileTheWholeOnce) {
  for (const PartCase& of : part_cases()) {
    std::vector<int> times(static_cast<size_t>(numel(of.whole)));
    for (int index = 0; index < of.degree; ++index) {
      const PartLayout part = layout_of(of, index);
      for (const PlacedRuns& one : part.runs({0, part.num_elements()})) {
        for (int64_t k = 0; k < one.whole.count; ++k) {
          for (int64_t i = 0; i < one.whole.size; ++i) ++times[one.whole.run(k).begin + i];
        }
      }
    }
    const int expected = of.placement.is_cut() ? 1 : of.degree;
    EXPECT_THAT(times, testing::Each(expected));
  }
}

TEST(PartLayout, ABlockOfColumnsIsOneValue) {
  const PartLayout part = layout_of({{1000, 64}, {1, {64}}, 4}, 1);
  const auto runs = part.runs({0, part.num_elements()});
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].whole, (StridedRange{16, 16, 64, 1000}));
  EXPECT_EQ(runs[0].whole.extent(), (Range{16, 999 * 64 + 32}));
}

TEST(PartLayout, TheWholeHasTheSizeOfAllSegments) {
  for (const PartCase& of : part_cases()) {
    const PartLayout part = layout_of(of, of.degree - 1);
    EXPECT_EQ(whole_shape(of.placement, part.shape()).or_throw(), of.whole);
  }
}

TEST(PartSizes, AreThoseOfTheRanks) {
  EXPECT_THAT(part_sizes(7, 1, 3), testing::ElementsAre(2, 2, 3));
  EXPECT_THAT(part_sizes(65, 16, 2), testing::ElementsAre(32, 33)) << "the rest is the last one's";
  EXPECT_THAT(part_sizes(13, 1, 3, 4), testing::ElementsAre(6, 3, 4)) << "blocks of 3, 3, 3 and 4";
}

TEST(PartLayout, CutsThatDoNotFitTheTensorAreRefused) {
  EXPECT_THAT(whole_shape({2, {4}}, {3, 2}).status().message(),
              testing::AllOf(testing::HasSubstr("dimension 2"), testing::HasSubstr("[3, 2]")));
  EXPECT_THAT(whole_shape({0, {}}, {3, 2}).status().message(), testing::HasSubstr("no segments"));
  EXPECT_FALSE(PartLayout::create({0, {4}}, {3, 2}, 0, 2).ok());
}

}  // namespace
}  // namespace hanji::layout
