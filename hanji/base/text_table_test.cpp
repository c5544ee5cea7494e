#include "hanji/base/text_table.h"

#include <gmock/gmock.h>

namespace hanji::base {
namespace {

using Align = TextTable::Align;

TextTable links() {
  TextTable table({{"link", Align::kLeft}, {"one way"}, {"source", Align::kLeft}});
  table.add({"PCIe 3 x1", "0.985 GB/s", "PCI Express Base Specification 3.0"});
  table.add({"NVLink 1", "80 GB/s", "NVIDIA"});
  return table;
}

TEST(TextTable, IsAsWideAsItsCellsWhereThatFits) {
  EXPECT_EQ(links().text(80),
            "link          one way  source\n"
            "PCIe 3 x1  0.985 GB/s  PCI Express Base Specification 3.0\n"
            "NVLink 1      80 GB/s  NVIDIA\n");
}

TEST(TextTable, BreaksTheWidestTextAtBlanks) {
  EXPECT_EQ(links().text(44),
            "link          one way  source\n"
            "PCIe 3 x1  0.985 GB/s  PCI Express Base\n"
            "                       Specification 3.0\n"
            "NVLink 1      80 GB/s  NVIDIA\n");
}

TEST(TextTable, BreaksHeadingsAndNoNumbers) {
  TextTable table({{"way", Align::kLeft}, {"kept beside, a rank"}, {"sent"}});
  table.add({"ring", "33.6 MB", "134 MB"});
  EXPECT_EQ(table.text(23),
            "           kept\n"
            "      beside, a\n"
            "way        rank    sent\n"
            "ring    33.6 MB  134 MB\n");
}

TEST(TextTable, PutsTheLastColumnsBelowWhereTheyDoNotFit) {
  TextTable table({{"size"}, {"time"}, {"rate"}, {"algorithm", Align::kLeft}});
  table.add({"1048576", "14.41", "72.76", "direct"});
  EXPECT_EQ(table.text(16),
            "   size   time\n"
            "   rate\n"
            "  algorithm\n"
            "1048576  14.41\n"
            "  72.76\n"
            "  direct\n");
}

TEST(TextTable, KeepsWhatMustStayWholeBelowTheNumbers) {
  TextTable table({{"seconds"}, {"flags", Align::kLeft, /*is_whole=*/true}});
  table.add({"0.1", "--mesh tp=2 --set a=b"});
  EXPECT_EQ(table.text(24),
            "seconds\n"
            "  flags\n"
            "    0.1\n"
            "  --mesh tp=2 --set a=b\n");
}

TEST(TextTable, HasNoLineOfHeadingsWithoutAny) {
  TextTable table({{"", Align::kLeft}, {""}}, 2);
  table.add({"한지", "1"});
  table.add({"paper"});
  EXPECT_EQ(table.text(), "  한지     1\n  paper\n");
}

}  // namespace
}  // namespace hanji::base
