#include "hanji/base/normal.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hanji::base {
namespace {

TEST(NormalQuantile, InvertsTheDistribution) {
  for (const double p : {1e-12, 1e-5, 0.02, 0.3, 0.5, 0.7, 0.98, 0.99999}) {
    EXPECT_NEAR(std::erfc(-normal_quantile(p) / std::sqrt(2.0)) / 2, p, 1e-14);
  }
}

}  // namespace
}  // namespace hanji::base
