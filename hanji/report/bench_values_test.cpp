#include "hanji/report/bench_values.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace hanji::report {
namespace {

using schedule::ReduceOp;
using schedule::Routine;

std::vector<int> row_of(int first) {
  std::vector<int> row(kValuePeriod);
  for (int i = 0; i < kValuePeriod; ++i) row[i] = first + i;
  return row;
}

ValueTile tile_of(const std::vector<int>& row) {
  return ValueTile(std::as_bytes(std::span(row)), sizeof(int));
}

TEST(BenchValues, EverySumOfAnySubsetIsExact) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kUInt8}) {
    const double limit = dtype == DType::kBFloat16  ? 256
                         : dtype == DType::kFloat16 ? 2048
                         : dtype == DType::kUInt8   ? 255
                                                    : 1 << 24;
    for (const int ranks : {1, 2, 3, 64}) {
      const auto table = value_table({.dtype = dtype, .ranks = ranks});
      for (int64_t i = 0; i < kValuePeriod; ++i) {
        double sum = 0;
        for (int rank = 0; rank < ranks; ++rank) sum += table[rank * kValuePeriod + i];
        EXPECT_EQ(sum, table[ranks * kValuePeriod + i]);
        EXPECT_LE(sum, limit);
      }
    }
  }
}

TEST(BenchValues, AveragesAreWholeNumbers) {
  for (const int ranks : {2, 3, 64}) {
    const auto table = value_table({.dtype = DType::kUInt8, .op = ReduceOp::kAvg, .ranks = ranks});
    for (int64_t i = 0; i < kValuePeriod; ++i) {
      double sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += table[rank * kValuePeriod + i];
      EXPECT_EQ(std::fmod(sum, ranks), 0);
      EXPECT_LE(sum, 255);
      EXPECT_EQ(sum / ranks, table[ranks * kValuePeriod + i]);
    }
  }
}

// What does nothing, or forgets a rank, must not leave the right values.
TEST(BenchValues, EveryTypeHasValuesThatItCanHold) {
  for (int type = 0; type < base::kNumDTypes; ++type) {
    const auto dtype = static_cast<DType>(type);
    for (const Routine routine : {Routine::kAllReduce, Routine::kAllGather}) {
      const auto table = value_table({.routine = routine, .dtype = dtype, .ranks = 3});
      const auto [least, most] = std::minmax_element(table.begin(), table.end() - kValuePeriod);
      EXPECT_GE(*least, 0) << base::name_of(dtype);
      EXPECT_LT(*least, *most) << base::name_of(dtype);
      if (base::size_of(dtype) > 1) continue;
      EXPECT_LE(*most, dtype == DType::kBool ? 1 : 255);
    }
  }
}

TEST(BenchValues, TheResultIsNoRanksInput) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
                            ReduceOp::kProd, ReduceOp::kBitXor}) {
    const auto table = value_table({.dtype = DType::kInt32, .op = op, .ranks = 3});
    const auto row = [&](int r) {
      return std::vector<double>(table.begin() + r * kValuePeriod,
                                 table.begin() + (r + 1) * kValuePeriod);
    };
    for (int rank = 0; rank < 3; ++rank) EXPECT_NE(row(rank), row(3)) << name_of(op);
    EXPECT_NE(row(0), row(1));
  }
}

TEST(BenchValues, TilesFillAndCompareAtAnyPhase) {
  const ValueTile tile = tile_of(row_of(5));
  for (const int64_t phase : {0, 1, 996, 997, 5000}) {
    std::vector<int> values(200'000);
    auto* bytes = reinterpret_cast<std::byte*>(values.data());
    const auto count = static_cast<int64_t>(values.size());
    tile.fill(bytes, count, phase);
    for (int64_t i = 0; i < count; i += 1009) {
      ASSERT_EQ(values[i], 5 + (phase + i) % kValuePeriod);
    }
    EXPECT_EQ(tile.num_wrong(bytes, count, phase), 0);
    EXPECT_GT(tile.num_wrong(bytes, count, phase + 1), count / 2);
    values[17] ^= 1 << 30;
    values[199'999] = -1;
    EXPECT_EQ(tile.num_wrong(bytes, count, phase), 2);
  }
}

TEST(BenchValues, PartsCoverTheOutputOnce) {
  for (int i = 0; i < schedule::kNumRoutines; ++i) {
    const auto routine = static_cast<Routine>(i);
    if (routine == Routine::kTreeReduce) continue;
    BenchCase call{.routine = routine, .bytes = 3 * 4 * 10, .root = 1, .ranks = 3};
    for (int rank = 0; rank < 3; ++rank) {
      int64_t covered = 0;
      for (const ExpectedPart& part : expected_parts(call, rank)) {
        EXPECT_EQ(part.begin, covered);
        covered += part.count;
      }
      EXPECT_EQ(covered, buffers_of(call, rank).output) << name_of(routine);
    }
  }
}

TEST(BenchValues, AllToAllGetsTheBlocksMeantForIt) {
  const auto parts =
      expected_parts({.routine = Routine::kAllToAll, .bytes = 3 * 4 * 10, .ranks = 3}, 2);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].row, 1);
  EXPECT_EQ(parts[1].begin, 10);
  EXPECT_EQ(parts[1].phase, 20);
}

}  // namespace
}  // namespace hanji::report
