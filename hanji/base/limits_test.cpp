#include "hanji/base/limits.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cerrno>

namespace hanji::base {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Limits, TooFewDescriptorsAreToldBeforeTheyAreMissing) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{100, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_TRUE(check_descriptors(20, "a job").ok());
  const Status refused = check_descriptors(120, "a job of 30 ranks");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("a job of 30 ranks needs 120 descriptors more"),
                                       HasSubstr("the limit is 100"), HasSubstr("ulimit -n")));
}

TEST(Limits, OnProcessesAreNamed) {
  const Status limited = no_more_processes("fork rank 3", EAGAIN);
  EXPECT_EQ(limited.code(), Code::kInvalidArgument);
  EXPECT_THAT(limited.message(), AllOf(HasSubstr("fork rank 3"), HasSubstr("by ulimit -u"),
                                       HasSubstr("pids.max"), HasSubstr("by kernel.threads-max")));
  EXPECT_EQ(no_more_processes("fork rank 3", ENOMEM).code(), Code::kOutOfMemory);
}

}  // namespace
}  // namespace hanji::base
