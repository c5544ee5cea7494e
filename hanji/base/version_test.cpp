#include "hanji/base/version.h"

#include <gmock/gmock.h>

namespace hanji::base {
namespace {

TEST(Version, IsThreeNumbers) {
  EXPECT_THAT(std::string(version()), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(BuildId, IsTheVersionAndTheLinkersIdAndStaysTheSame) {
  const std::string id = build_id();
  EXPECT_THAT(id, testing::MatchesRegex("[0-9.]+\\+[0-9a-f]{16}"));
  EXPECT_EQ(id.substr(0, version().size()), version());
  EXPECT_EQ(build_id(), id);
}

}  // namespace
}  // namespace hanji::base
