#include "hanji/train/measure_link.h"

#include <gtest/gtest.h>

namespace hanji::train {
namespace {

TEST(NetworkOf, TheRateIsThatOfTheBytesBesideTheLatency) {
  const cost::Network link = network_of(0.3e-3, 16.3e-3, 2e6);
  EXPECT_NEAR(link.bytes_per_second, 125e6, 1);
  EXPECT_NEAR(link.latency_seconds, 0.1e-3, 1e-9);
}

/// Two processes of one busy machine: calls take as long with bytes as without.
TEST(NetworkOf, WhatIsNotToldApartFromTheLatencyIsARateThatTheLinkHasAtLeast) {
  for (const double large : {0.9e-3, 1e-3, 1.01e-3, 1.9e-3}) {
    EXPECT_DOUBLE_EQ(network_of(1e-3, large, 2e6).bytes_per_second, 2e6 / large);
  }
}

}  // namespace
}  // namespace hanji::train
