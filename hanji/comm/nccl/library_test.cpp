#include <gtest/gtest.h>

#include <cstdlib>

#include "hanji/comm/nccl/group.h"
#include "hanji/comm/nccl/internal/library.h"

namespace hanji::comm {
namespace {

TEST(NcclLibrary, ItsVersionIsReadAsPeopleSayIt) {
  EXPECT_EQ(nccl::find_version({.library = HANJI_FAKE_NCCL}).or_throw(), "2.27.3");
}

TEST(NcclLibrary, SetsItsVariablesAndNoOthers) {
  const nccl::Options foreign{.library = HANJI_FAKE_NCCL, .variables = {{"PATH", "/"}}};
  EXPECT_EQ(nccl::Library::load(foreign).status().code(), base::Code::kInvalidArgument);
  const nccl::Options own{.library = HANJI_FAKE_NCCL, .variables = {{"NCCL_HANJI_TEST", "1"}}};
  EXPECT_TRUE(nccl::Library::load(own).ok());
  EXPECT_STREQ(std::getenv("NCCL_HANJI_TEST"), "1");
  ::unsetenv("NCCL_HANJI_TEST");
}

}  // namespace
}  // namespace hanji::comm
