#include "hanji/base/advice.h"

#include <gmock/gmock.h>

#include <cerrno>

#include "hanji/base/status.h"

namespace hanji::base {
namespace {

TEST(WithAdvice, TakesThePlaceOfTheGeneralAdvice) {
  for (const int error : {ENOENT, EACCES, ENAMETOOLONG, EMFILE, EIO}) {
    const std::string message = from_errno("open x", error).message();
    const std::string advised = with_advice(message, "name another folder");
    EXPECT_TRUE(advised.starts_with(std::string("open x: ") + std::strerror(error))) << advised;
    EXPECT_TRUE(advised.ends_with("; name another folder")) << advised;
    if (error != EIO) {
      EXPECT_EQ(advised.find(advice_for(error)), advised.npos) << advised;
    }
  }
}

TEST(WithAdvice, KeepsFactsBehindASemicolon) {
  EXPECT_EQ(with_advice("3 of 4; 1 is missing", "wait"), "3 of 4; 1 is missing; wait");
}

}  // namespace
}  // namespace hanji::base
