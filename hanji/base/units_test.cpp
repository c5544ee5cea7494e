#include "hanji/base/units.h"

#include <gmock/gmock.h>

#include <limits>

namespace hanji::base {
namespace {

TEST(FormatBytes, HasThreeDigitsAndPowersOf1000) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1536), "1.54 kB");
  EXPECT_EQ(format_bytes(1'500'000), "1.50 MB");
  EXPECT_EQ(format_bytes(64 << 20), "67.1 MB");
  EXPECT_EQ(format_bytes(999'999), "1.00 MB");  // not "1000 kB"
  EXPECT_EQ(format_bytes(-2048), "-2.05 kB");
  EXPECT_EQ(format_bytes(std::numeric_limits<int64_t>::max()), "9223 PB");
}

TEST(FormatCount, HasThreeDigitsAndPowersOf1000) {
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(10'700'000), "10.7 M");
  EXPECT_EQ(format_count(124'439'808), "124 M");
  EXPECT_EQ(format_count(999'999), "1.00 M");
}

TEST(Counted, OnlyOneIsWithoutAnS) {
  EXPECT_EQ(counted(0, "page"), "0 pages");
  EXPECT_EQ(counted(1, "page"), "1 page");
  EXPECT_EQ(counted(2, "page"), "2 pages");
}

TEST(FormatSeconds, PicksTheUnitThatPeopleSay) {
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(850e-9), "850 ns");
  EXPECT_EQ(format_seconds(12.34e-6), "12.3 us");
  EXPECT_EQ(format_seconds(1.2e-3), "1.20 ms");
  EXPECT_EQ(format_seconds(0.9999), "1.00 s");
  EXPECT_EQ(format_seconds(3.5), "3.50 s");
  EXPECT_EQ(format_seconds(59.99), "1 min 00 s");
  EXPECT_EQ(format_seconds(125), "2 min 05 s");
  EXPECT_EQ(format_seconds(11220), "3 h 07 min");
  EXPECT_EQ(format_seconds(-2), "-2.00 s");
  EXPECT_EQ(format_seconds(-1e-17), "0 s") << "what a difference of sums may leave";
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(ParseBytes, KnowsBothKindsOfUnits) {
  EXPECT_EQ(*parse_bytes("4096"), 4096);
  EXPECT_EQ(*parse_bytes("64MiB"), 64 << 20);
  EXPECT_EQ(*parse_bytes(" 1.5 GiB "), int64_t{3} << 29);
  EXPECT_EQ(*parse_bytes("64MB"), 64'000'000);
  EXPECT_EQ(*parse_bytes("0"), 0);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* bad :
       {"", "MiB", "-1", "64mib", "64 MiB x", "1e30", "nan", "inf", "9000000TiB"}) {
    EXPECT_EQ(parse_bytes(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(ParseSeconds, WantsAUnit) {
  EXPECT_DOUBLE_EQ(*parse_seconds("300s"), 300);
  EXPECT_DOUBLE_EQ(*parse_seconds("5m"), 300);
  EXPECT_DOUBLE_EQ(*parse_seconds("250ms"), 0.25);
  EXPECT_DOUBLE_EQ(*parse_seconds("2h"), 7200);
  EXPECT_DOUBLE_EQ(*parse_seconds("0"), 0);
  for (const char* bad : {"", "300", "s", "-5s", "5 parsecs", "1.2.3s"}) {
    EXPECT_EQ(parse_seconds(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(Units, WhatIsFormattedParsesBack) {
  EXPECT_EQ(*parse_bytes(format_bytes(1'500'000)), 1'500'000);
  EXPECT_DOUBLE_EQ(*parse_seconds(format_seconds(1.2e-3)), 1.2e-3);
}

}  // namespace
}  // namespace hanji::base
