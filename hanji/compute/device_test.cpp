#include "hanji/compute/device.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "hanji/compute/attention.h"
#include "hanji/compute/cross_entropy.h"
#include "hanji/compute/gelu.h"
#include "hanji/compute/linear.h"

namespace hanji::compute {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Gpus, AreCountedOrTheirAbsenceHasAReason) {
  const Gpus gpus = find_gpus();
  EXPECT_EQ(gpus.count == 0, !gpus.why_none.empty());
  EXPECT_EQ(check_gpus(gpus).ok(), gpus.count > 0);
}

TEST(Gpus, NoneIsRefusedWithWhatWhyAndAWayOut) {
  const Status refused = check_gpus({.why_none = "CUDA_VISIBLE_DEVICES hides them"});
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("compute.device = cuda"), HasSubstr("hides them"),
                                       HasSubstr("set compute.device = \"cpu\"")));
  EXPECT_EQ(gpu_of(0, {.why_none = "none"}).status().code(), Code::kUnsupported);
}

TEST(Gpus, EachRankOfAHostHasOneOfItsOwn) {
  const Gpus two{.count = 2};
  EXPECT_EQ(gpu_of(0, two).or_throw(), c10::Device(c10::kCUDA, 0));
  EXPECT_EQ(gpu_of(1, two).or_throw(), c10::Device(c10::kCUDA, 1));
  const Status third = gpu_of(2, two).status();
  EXPECT_EQ(third.code(), Code::kInvalidArgument);
  EXPECT_THAT(third.message(), AllOf(HasSubstr("rank 2"), HasSubstr("2 are visible")));
}

/// The device without memory stands for a GPU: a kernel of ours, which reads memory, would fault.
TEST(Operations, LeaveTensorsOfAnotherDeviceToLibtorch) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto meta = [](at::IntArrayRef sizes, at::ScalarType of) {
      return at::empty(sizes, at::TensorOptions(of).device(at::kMeta));
    };
    const auto weight = [&](at::IntArrayRef sizes) { return Weight{meta(sizes, at::kFloat), {}}; };
    const auto is_there = [&](const at::Tensor& result, at::IntArrayRef sizes, at::ScalarType of) {
      EXPECT_TRUE(result.is_meta());
      EXPECT_EQ(result.sizes(), sizes);
      EXPECT_EQ(result.scalar_type(), of);
    };
    is_there(linear(meta({2, 8, 16}, type), weight({48, 16})), {2, 8, 48}, type);
    const AttentionOptions dropping{
        .heads = 4, .attention = Attention::kMath, .dropout = 0.1, .key = {}};
    is_there(causal_attention(meta({2, 8, 48}, type), weight({48}), dropping), {2, 8, 16}, type);
    is_there(bias_gelu(meta({2, 8, 64}, type), weight({64})), {2, 8, 64}, type);
    is_there(cross_entropy_sum(meta({16, 50}, type), meta({16}, at::kLong)), {}, at::kFloat);
  }
}

}  // namespace
}  // namespace hanji::compute
