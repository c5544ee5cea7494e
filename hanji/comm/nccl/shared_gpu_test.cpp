#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <iostream>
#include <string>

#include "hanji/comm/all_reduce.h"
#include "hanji/comm/internal/test_ranks.h"
#include "hanji/comm/nccl/group.h"

namespace hanji::comm {
namespace {

using internal::run_ranks;
using testing::HasSubstr;

bool has_gpu() {
  return c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
         c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() > 0;
}

/// NCCL gives each communicator's rank a device of its own, or lets several share one, by its version. Either is an answer;
/// a hang is none.
TEST(Nccl, TwoRanksShareAGpuOrAreToldThatTheyCannot) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU here";
  const c10::Device gpu(c10::kCUDA, 0);
  std::array<std::string, 2> answers;
  run_ranks(2, [&](const Group& shm) {
    GroupOptions options = shm.options();
    options.deadline = std::chrono::seconds(30);
    try {
      const Group group = nccl::make_group(shm, gpu, options);
      at::Tensor tensor =
          at::full({1 << 10}, shm.rank() + 1, at::TensorOptions(at::kInt).device(gpu));
      all_reduce(tensor, group).wait();
      EXPECT_TRUE(at::equal(tensor.cpu(), at::full({1 << 10}, 3, at::kInt)));
      answers[shm.rank()] = "they share it, and sums are right";
    } catch (const Error& refused) {
      EXPECT_THAT(refused.what(), HasSubstr("nccl")) << "names the call that failed";
      answers[shm.rank()] = refused.what();
    }
  });
  std::cout << "two ranks on one GPU: " << answers[0] << std::endl;
  EXPECT_EQ(answers[0].empty(), answers[1].empty());
}

}  // namespace
}  // namespace hanji::comm
