#include "hanji/base/advice.h"

#include <gmock/gmock.h>

#include <cerrno>

#include "hanji/base/status.h"

namespace hanji::base {
namespace {

TEST(WithAdvice, TakesThePlaceOfTheGeneralAdvice) {
  for (const int error : {ENOENT, EACCES, ENAMETOOLONG, EMFILE, EIO}) {
    const std::string message = from_errno("open x", error).message();
    EXPECT_EQ(with_advice(message, "name another folder"),
              std::string("open x: ") + std::strerror(error) + "; name another folder");
  }
}

TEST(WithAdvice, KeepsFactsBehindASemicolon) {
  EXPECT_EQ(with_advice("3 of 4; 1 is missing", "wait"), "3 of 4; 1 is missing; wait");
}

}  // namespace
}  // namespace hanji::base
