#include "hanji/comm/nccl/switch_sums.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace hanji::comm {
namespace {

TEST(NcclLog, TellsOfSumsInSwitches) {
  const auto said = [](std::string_view log) {
    return nccl::describe(nccl::read_switch_sums(log));
  };
  EXPECT_EQ(said(""), "NVLS ?, SHARP ?");
  const std::string done = "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 Init COMPLETE\n";
  EXPECT_EQ(said(done), "NVLS off, SHARP off");
  EXPECT_EQ(said("NCCL INFO NVLS multicast support is available on dev 0\n" + done),
            "NVLS on, SHARP off");
  EXPECT_EQ(said("NCCL INFO NVLS multicast support is not available on dev 0\n" + done +
                 "NCCL INFO Connected CollNet\n"),
            "NVLS off, SHARP on");
}

}  // namespace
}  // namespace hanji::comm
