#include "hanji/base/at_end.h"

#include <gtest/gtest.h>

namespace hanji::base {
namespace {

TEST(AtEnd, CallsOnceWhenTheScopeEndsAlsoByAnException) {
  int calls = 0;
  try {
    const AtEnd count([&] { ++calls; });
    EXPECT_EQ(calls, 0);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace hanji::base
