#include "hanji/train/stop_signal.h"

#include <gtest/gtest.h>
#include <csignal>

namespace hanji::train {
namespace {

TEST(StopSignal, TellsASignalOnceAndDoesNotDie) {
  auto signal = StopSignal::create();
  ASSERT_TRUE(signal.ok());
  EXPECT_EQ(signal->poll(), std::nullopt);
  raise(SIGTERM);
  EXPECT_EQ(signal->poll(), SIGTERM);
  EXPECT_EQ(signal->poll(), std::nullopt);
}

}  // namespace
}  // namespace hanji::train
