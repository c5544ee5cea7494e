#include "hanji/data/internal/csv_table.h"

#include <gmock/gmock.h>

namespace hanji::data::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CsvTable, ReadsRowsByNumber) {
  const auto table = CsvTable::parse("name,label\r\nfirst,1\r\n\r\nsecond,2").or_throw();
  EXPECT_THAT(table.columns(), ElementsAre("name", "label"));
  ASSERT_EQ(table.num_rows(), 2);
  EXPECT_THAT(table.row(1), ElementsAre("second", "2"));
  EXPECT_THAT(table.row(0), ElementsAre("first", "1"));
  EXPECT_EQ(table.line_of(1), 4);
}

TEST(CsvTable, QuotesHoldCommasLineEndsAndQuotes) {
  const auto table =
      CsvTable::parse("\xEF\xBB\xBF\"a,b\",c\n\"1,\n2\",\"say \"\"yes\"\"\"\n,\n").or_throw();
  EXPECT_THAT(table.columns(), ElementsAre("a,b", "c"));
  ASSERT_EQ(table.num_rows(), 2);
  EXPECT_THAT(table.row(0), ElementsAre("1,\n2", "say \"yes\""));
  EXPECT_THAT(table.row(1), ElementsAre("", ""));
}

TEST(CsvTable, MistakesAreNamedWithTheirLine) {
  const auto message = [](std::string_view text) {
    const Status status = CsvTable::parse(text).status();
    EXPECT_EQ(status.code(), Code::kCorrupt) << text;
    return status.message();
  };
  EXPECT_THAT(message("a,b\n1,2\n1,2,3\n"), HasSubstr("line 3: 3 values for 2 columns"));
  EXPECT_THAT(message("a,b\n\"1\n2\",3\n4\n"), HasSubstr("line 4: 1 values"));
  EXPECT_THAT(message("a\n\"open\n"), HasSubstr("line 2: a quote that is not closed"));
  EXPECT_THAT(message("a\n\"x\"y\n"), HasSubstr("behind the closing quote"));
  EXPECT_THAT(message("a\nx\"y\n"), HasSubstr("a quote within a value"));
  EXPECT_THAT(message(std::string_view("a\nx\0y\n", 6)), HasSubstr("zero byte"));
  EXPECT_THAT(message("a,a\n1,2\n"), HasSubstr("two columns of one name"));
  EXPECT_THAT(message("a,b\n"), HasSubstr("no line of names with a line of values"));
  EXPECT_THAT(message(""), HasSubstr("no line of names"));
}

}  // namespace
}  // namespace hanji::data::internal
