#include "hanji/topology/contention.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/topology/internal/contention_json.h"

namespace hanji::topology {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Kinds = std::vector<SharedLink>;
constexpr SharedLink kMemory = SharedLink::kMemory, kUnix = SharedLink::kUnix,
                     kLoopback = SharedLink::kLoopback;

/// Copies share 10 GB/s, of which one takes 8; each socket has 2 GB/s of its own.
Result<std::vector<double>> bus(const Kinds& links) {
  const auto copies = static_cast<double>(std::ranges::count(links, kMemory));
  std::vector<double> rates;
  for (const SharedLink kind : links) {
    rates.push_back(kind == kMemory ? std::min(8e9, 10e9 / copies) : 2e9);
  }
  return rates;
}

const LinksAtOnce& busy_row(const Contention& found, const Kinds& links) {
  return *std::ranges::find(found.rows, links, &LinksAtOnce::links);
}

TEST(Contention, MeasuresTwoAndAllOfAKindAndEachPairOfKinds) {
  EXPECT_THAT(links_at_once(2), ElementsAre(Kinds{kMemory, kMemory}, Kinds{kUnix, kUnix},
                                            Kinds{kLoopback, kLoopback}, Kinds{kMemory, kUnix},
                                            Kinds{kMemory, kLoopback}, Kinds{kUnix, kLoopback}));
  EXPECT_THAT(links_at_once(8), AllOf(SizeIs(9), Contains(Kinds(8, kMemory))));
}

TEST(Contention, TellsWhatLinksKeepOfTheirRatesAlone) {
  const Contention found = measure_contention(4, bus);
  EXPECT_DOUBLE_EQ(busy_row(found, {kMemory, kMemory}).ratio(), 5.0 / 8);
  EXPECT_DOUBLE_EQ(busy_row(found, Kinds(4, kMemory)).ratio(), 2.5 / 8);
  EXPECT_DOUBLE_EQ(busy_row(found, {kLoopback, kLoopback}).ratio(), 1);
  EXPECT_DOUBLE_EQ(busy_row(found, {kMemory, kUnix}).ratio(), 1);
  const std::string text = contention_text(found);
  EXPECT_THAT(text, AllOf(HasSubstr("2 x memory"), HasSubstr("8.00 GB/s"), HasSubstr("5.00 GB/s"),
                          HasSubstr("0.62"), HasSubstr("memory + loopback TCP")));
}

TEST(Contention, OneDisturbedRoundOfThreeChangesNoFigure) {
  int calls = 0;
  const int per_round = 3 + static_cast<int>(links_at_once(2).size());
  const auto disturbed = [&](const Kinds& links) {
    auto rates = bus(links);
    if (calls++ / per_round == 1) {
      for (double& one : *rates) one /= 10;
    }
    return rates;
  };
  const Contention found = measure_contention(2, disturbed);
  EXPECT_EQ(calls, 3 * per_round);
  EXPECT_DOUBLE_EQ(busy_row(found, {kMemory, kMemory}).ratio(), 5.0 / 8);
  EXPECT_THAT(busy_row(found, {kMemory, kMemory}).alone, Each(8e9));
}

TEST(Contention, WhatCannotBeMeasuredSaysWhy) {
  const auto without_loopback = [](const Kinds& links) -> Result<std::vector<double>> {
    if (std::ranges::count(links, kLoopback) > 0) return base::internal("no loopback here");
    return bus(links);
  };
  const Contention found = measure_contention(2, without_loopback);
  for (const LinksAtOnce& row : found.rows) {
    const bool has_loopback = std::ranges::count(row.links, kLoopback) > 0;
    EXPECT_EQ(row.unknown, has_loopback ? "no loopback here" : "");
    EXPECT_EQ(row.ratio() == 0, has_loopback);
  }
  EXPECT_THAT(contention_text(found), HasSubstr("unknown: no loopback here"));
  const base::Json json = contention_json(found);
  EXPECT_TRUE(json["rows"][2]["ratio"].is_null());
  EXPECT_EQ(json["rows"][2]["unknown"], "no loopback here");
  EXPECT_EQ(json["rows"][0]["ratio"], 5.0 / 8);
}

TEST(Contention, AfterTheBudgetTheRestIsLeftOut) {
  int calls = 0;
  const auto counted = [&](const Kinds& links) {
    ++calls;
    return bus(links);
  };
  const Contention found = measure_contention(2, counted, std::chrono::nanoseconds(0));
  EXPECT_EQ(calls, 0);
  EXPECT_THAT(found.rows, Each(Field(&LinksAtOnce::unknown, HasSubstr("time for measuring"))));
  EXPECT_THAT(found.rows, Each(Field(&LinksAtOnce::together, IsEmpty())));
}

TEST(Contention, TheLinksOfThisHostMoveBytesAloneAndAtOnce) {
  const Machine machine = read_machine().or_throw();
  const MeasureLinks links = host_links(machine, 16 << 20);
  for (const Kinds& one : std::vector<Kinds>{
           {kMemory}, {kUnix}, {kLoopback}, {kMemory, kMemory}, {kMemory, kUnix, kLoopback}}) {
    const auto rates = links(one);
    ASSERT_TRUE(rates.ok()) << rates.status().message();
    EXPECT_THAT(*rates, AllOf(SizeIs(one.size()), Each(testing::Gt(1e6))));
  }
}

TEST(Contention, ACoreThatIsNotThereIsAReason) {
  Machine machine;
  machine.core_cpus = {{100000}};
  const auto rates = host_links(machine, 1 << 20)({kMemory});
  EXPECT_THAT(rates.status().message(), HasSubstr("cannot pin to CPU 100000"));
}

}  // namespace
}  // namespace hanji::topology
