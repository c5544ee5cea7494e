#include "hanji/report/operations.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include "hanji/base/file.h"
#include "hanji/report/roofline.h"

namespace hanji::report {
namespace {

using testing::HasSubstr;
using testing::Not;

/// 100 GF/s and 10 GB/s, which meet at 10 flop/byte; two steps of half a second.
OperationsRecord operations_of_rank(std::vector<OperationRow> rows) {
  return {.rank = 1,
          .ranks = 2,
          .first_step = 10,
          .last_step = 11,
          .threads = 1,
          .roof = {.flops_per_second = 100e9, .bytes_per_second = 10e9},
          .seconds = 1,
          .waits = 0.25,
          .step_seconds = 0.5,
          .other_step_seconds = 0.4,
          .rows = std::move(rows)};
}

OperationRow operation_row(const char* operation, double seconds, double flops, int64_t bytes) {
  return {.operation = operation,
          .layer = 3,
          .phase = "forward",
          .calls = 4,
          .seconds = seconds,
          .flops = flops,
          .bytes = bytes,
          .memory_bytes = 1 << 20};
}

TEST(Operations, AreReadAsTheyWereWritten) {
  OperationsRecord record =
      operations_of_rank({operation_row("aten::mm", 0.5, 25e9, 1'000'000'000)});
  EXPECT_EQ(*operations_from_jsonl(to_jsonl(record)), record);
  record.other_step_seconds.reset();
  EXPECT_EQ(*operations_from_jsonl(to_jsonl(record)), record);
}

TEST(Operations, OfADamagedFileNameItsLine) {
  const std::string text =
      to_jsonl(operations_of_rank({operation_row("aten::mm", 0.5, 25e9, 1000)}));
  EXPECT_THAT(operations_from_jsonl(text + "{\"operation\":3}\n").status().message(),
              HasSubstr("line 3: operation is of another type"));
  EXPECT_THAT(operations_from_jsonl("").status().message(), HasSubstr("line 1: it is missing"));
  EXPECT_THAT(operations_from_jsonl("{\"format\":7}").status().message(),
              HasSubstr("format is 7, and 1 is read"));
}

TEST(Operations, LieInTheFolderOfARunOrNowhere) {
  char name[] = "/tmp/hanji_operations_XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name);
  EXPECT_TRUE(read_operations(folder)->empty());
  const OperationsRecord record = operations_of_rank({});
  ASSERT_TRUE(base::make_directories((folder / operations_file(1)).parent_path()).ok());
  ASSERT_TRUE(base::write_file_atomic(folder / operations_file(1), to_jsonl(record)).ok());
  EXPECT_THAT(*read_operations(folder), testing::ElementsAre(record));
  ASSERT_TRUE(base::write_file_atomic(folder / operations_file(0), "{").ok());
  EXPECT_THAT(read_operations(folder).status().message(), HasSubstr("rank.0.jsonl: line 1"));
  static_cast<void>(base::remove_tree(folder));
}

TEST(Operations, OfAllLayersAreAddedUp) {
  OperationRow other = operation_row("aten::mm", 0.25, 5e9, 1000);
  other.layer = 4;
  other.memory_bytes = 3 << 20;
  OperationRow backward = operation_row("aten::mm", 0.6, 1, 1);
  backward.phase = "backward";
  const auto sums = by_operation(
      operations_of_rank({operation_row("aten::mm", 0.25, 5e9, 1000), other, backward}));
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0].phase, "backward");
  EXPECT_EQ(sums[1].calls, 8);
  EXPECT_DOUBLE_EQ(sums[1].seconds, 0.5);
  EXPECT_DOUBLE_EQ(sums[1].flops, 10e9);
  EXPECT_EQ(sums[1].memory_bytes, 3 << 20);
}

TEST(Operations, StandToTheRoofByTheirIntensity) {
  const Roof roof = operations_of_rank({}).roof;
  // 25 flop/byte, beyond the ridge: half of the products' rate.
  EXPECT_DOUBLE_EQ(*roof_point(operation_row("a", 0.5, 25e9, 1'000'000'000), roof).share, 0.5);
  // 1 flop/byte: the memory gives 10 GF/s, and 5 are reached.
  EXPECT_DOUBLE_EQ(*roof_point(operation_row("a", 1, 5e9, 5'000'000'000), roof).share, 0.5);
  // No flops: bytes per second.
  EXPECT_DOUBLE_EQ(*roof_point(operation_row("a", 1, 0, 5'000'000'000), roof).share, 0.5);
  EXPECT_FALSE(roof_point(operation_row("a", 1, 0, 0), roof).share);
  EXPECT_FALSE(roof_point(operation_row("a", 1, 5e9, 5'000'000'000), {}).share);
}

TEST(Operations, TextHasRatesTheRoofAndWhatProfilingCosts) {
  const auto text =
      operations_text(operations_of_rank({operation_row("aten::mm", 0.5, 25e9, 1'000'000'000),
                                          operation_row("aten::copy_", 0.2, 0, 1'000'000'000),
                                          operation_row("aten::add", 0.1, 1e8, 400'000'000)}),
                      2, 80);
  EXPECT_THAT(text, HasSubstr("Operations of rank 1 in steps 10-11, of a step:"));
  EXPECT_THAT(text, testing::ContainsRegex("mm +forward +2 +250 ms +50 % +25.0 +50.0 +50 %"));
  EXPECT_THAT(text, testing::ContainsRegex("copy_ +forward +2 +100 ms +20 % +- +5.0 GB/s +50 %"));
  EXPECT_THAT(text, HasSubstr("1 others"));
  EXPECT_THAT(text, HasSubstr("others beside it 400 ms (+25.0 %)"));
  EXPECT_THAT(text, HasSubstr("they meet at 10.0"));
  EXPECT_THAT(text, Not(HasSubstr("Above the roof")));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 80u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(Operations, AboveTheRoofAreNamed) {
  const auto text = operations_text(
      operations_of_rank({operation_row("aten::mm", 0.1, 25e9, 1'000'000'000)}), 2, 80);
  EXPECT_THAT(text, HasSubstr("(forward, 250 %)"));
}

TEST(Operations, UnmeasuredIsSaid) {
  OperationsRecord record =
      operations_of_rank({operation_row("aten::mm", 0.5, 25e9, 1'000'000'000)});
  record.roof = {};
  record.other_step_seconds.reset();
  const auto text = operations_text(record, 2, 80);
  EXPECT_THAT(text, HasSubstr("The roof was not measured"));
  EXPECT_THAT(text, HasSubstr("What profiling costs was not measured"));
  EXPECT_THAT(roofline_svg(record), HasSubstr("were not measured"));
}

TEST(Roofline, DrawsAPointAboveTheRoofWhereItIs) {
  const auto svg =
      roofline_svg(operations_of_rank({operation_row("aten::mm<1>", 0.1, 25e9, 1'000'000'000),
                                       operation_row("aten::add", 0.1, 1e8, 400'000'000),
                                       operation_row("aten::copy_", 0.2, 0, 1000)}));
  EXPECT_THAT(svg, HasSubstr("role=\"img\""));
  EXPECT_THAT(svg, HasSubstr("Roofline of rank 1: 2 operations"));
  EXPECT_THAT(svg,
              testing::ContainsRegex(
                  "class=\"above\".*2[.] aten::mm&lt;1&gt;, forward: "
                  "10.0 % of the time, 25.00 flop/byte, 250.0 GF/s, 250 % of the roof: above"));
  EXPECT_THAT(svg, HasSubstr("class=\"point\""));
  EXPECT_THAT(svg, HasSubstr("take 20.0 % of the time"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Roofline, OfTheSameRecordHasTheSameBytes) {
  const auto record = operations_of_rank({operation_row("aten::mm", 0.5, 25e9, 1'000'000'000)});
  EXPECT_EQ(roofline_svg(record), roofline_svg(record));
}

TEST(Roofline, WithoutFlopsIsSaid) {
  EXPECT_THAT(roofline_svg(operations_of_rank({operation_row("aten::copy_", 0.2, 0, 1000)})),
              HasSubstr("no operation with flops"));
}

}  // namespace
}  // namespace hanji::report
