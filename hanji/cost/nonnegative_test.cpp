#include "hanji/cost/nonnegative.h"

#include <gtest/gtest.h>

namespace hanji::cost {
namespace {

TEST(SolveNonnegative, FindsWhatMadeTheValues) {
  const std::vector<Equation> equations = {
      {{1, 0, 1}, 4e-6}, {{1, 100, 0}, 201e-6}, {{1, 50, 2}, 107e-6}, {{0, 10, 1}, 23e-6}};
  const auto x = solve_nonnegative(equations);  // 1e-6, 2e-6, 3e-6
  EXPECT_NEAR(x[0], 1e-6, 1e-9);
  EXPECT_NEAR(x[1], 2e-6, 1e-9);
  EXPECT_NEAR(x[2], 3e-6, 1e-9);
}

TEST(SolveNonnegative, NeverGoesBelowZero) {
  // Exact would be 3 and -1.
  const auto x = solve_nonnegative(std::vector<Equation>{{{1, 1}, 2}, {{1, 2}, 1}});
  EXPECT_EQ(x[1], 0);
  EXPECT_GT(x[0], 0.9);
}

TEST(SolveNonnegative, OneWildEquationChangesLittle) {
  std::vector<Equation> equations;
  for (int i = 1; i <= 20; ++i) {
    equations.push_back({{1.0, static_cast<double>(i)}, 5.0 + 2.0 * i});
  }
  equations[10].value *= 5;  // somebody else had the machine
  const auto x = solve_nonnegative(equations);
  EXPECT_NEAR(x[0] + 10 * x[1], 25, 0.5);
}

TEST(SolveNonnegative, AnUnusedUnknownIsZero) {
  EXPECT_EQ(solve_nonnegative(std::vector<Equation>{{{2, 0}, 4}})[1], 0);
  EXPECT_TRUE(solve_nonnegative({}).empty());
}

}  // namespace
}  // namespace hanji::cost
