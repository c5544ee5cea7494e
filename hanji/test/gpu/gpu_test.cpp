#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include "hanji/test/gpu/counts.h"

namespace {

using at::Tensor;

const at::TensorOptions kGpu = at::TensorOptions(at::kFloat).device(at::kCUDA);

int64_t waits() { return fake_gpu_count("synchronizations"); }

/// The parameters after three steps of AdamW on a net with a norm, attention and a loss.
std::vector<Tensor> trained(c10::Device device, at::ScalarType dtype) {
  std::vector<Tensor> parameters;
  for (int i = 0; i < 3; ++i) {
    auto values = at::arange(16 * 16, at::kFloat).view({16, 16}).add(i).sin().mul(0.2);
    parameters.push_back(values.to(at::TensorOptions(dtype).device(device)).requires_grad_());
  }
  const auto zeros = [](const Tensor& like) { return at::zeros_like(like); };
  std::vector<Tensor> means, squares, steps;
  for (const auto& one : parameters) {
    means.push_back(zeros(one.detach()));
    squares.push_back(zeros(one.detach()));
    steps.push_back(at::zeros({}, at::TensorOptions(at::kFloat).device(device)));
  }
  const auto tokens = at::arange(24).remainder(16).view({2, 12}).to(device);
  for (int step = 0; step < 3; ++step) {
    auto x = at::embedding(parameters[0], tokens);
    x = at::layer_norm(x, {16});
    const auto q = at::linear(x, parameters[1]).view({2, 12, 2, 8}).transpose(1, 2);
    x = x +
        at::scaled_dot_product_attention(q, q, q, {}, 0, true).transpose(1, 2).reshape({2, 12, 16});
    const auto logits = at::linear(at::gelu(x), parameters[2]).view({24, 16}).to(at::kFloat);
    const auto loss = at::cross_entropy_loss(logits, tokens.view({24}));
    const auto gradients = torch::autograd::grad({loss}, parameters);
    at::NoGradGuard guard;
    for (auto& one : steps) one.add_(1);
    at::_fused_adamw_(parameters, gradients, means, squares, {}, steps, 0.01, 0.9, 0.99, 0.1, 1e-8,
                      false, false);
  }
  return parameters;
}

/// Parameters lie below 1/4, so a rounding is half of 2^-26 or 2^-10 wide there, and each of three steps
/// rounds twice: what differs are the ways that libtorch takes above its kernels.
TEST(FakeGpu, TrainsAsTheCpuDoes) {
  for (const auto& [dtype, bound] : {std::pair{at::kFloat, 6e-7}, std::pair{at::kBFloat16, 3e-3}}) {
    const auto expected = trained(at::kCPU, dtype);
    const auto seen = trained(at::kCUDA, dtype);
    for (size_t i = 0; i < seen.size(); ++i) {
      EXPECT_TRUE(seen[i].is_cuda());
      EXPECT_LE((seen[i].cpu() - expected[i]).abs().max().item<double>(), bound) << i << dtype;
    }
  }
}

TEST(FakeGpu, ViewsAndResultsShareMemoryAsOnAnyDevice) {
  const auto x = at::arange(6, kGpu);
  const auto view = x.view({2, 3}).t();
  EXPECT_TRUE(view.is_cuda());
  EXPECT_TRUE(view.is_alias_of(x));
  x.zero_();
  EXPECT_EQ(view.sum().item<float>(), 0);
  auto grown = at::empty({0}, kGpu);
  at::add_out(grown, x, x);
  EXPECT_EQ(grown.sizes(), x.sizes());
  EXPECT_EQ(grown.device(), x.device());
}

TEST(FakeGpu, RefusesTensorsOfTwoDevicesExceptNumbers) {
  const auto x = at::ones({3}, kGpu), y = at::ones({3});
  EXPECT_THROW(x + y, c10::Error);
  EXPECT_THROW(at::mm(at::ones({3, 3}, kGpu), at::ones({3, 3})), c10::Error);
  EXPECT_EQ((x + at::scalar_tensor(2)).cpu()[0].item<float>(), 3);
}

TEST(FakeGpu, CountsWhereTheHostWaits) {
  const auto x = at::ones({4}, kGpu);
  fake_gpu_reset();
  const auto y = x * 2 + x;
  EXPECT_EQ(waits(), 0);
  y.sum().item();
  EXPECT_EQ(fake_gpu_count("synchronizations aten::_local_scalar_dense"), 1);
  const auto z = y.cpu();
  EXPECT_EQ(fake_gpu_count("synchronizations copy to host"), 1);
  EXPECT_EQ(fake_gpu_count("bytes_to_host"), 20);
  z.to(at::kCUDA);
  EXPECT_EQ(waits(), 3);
  z.pin_memory().to(at::kCUDA, /*non_blocking=*/true);
  EXPECT_EQ(waits(), 3);
  EXPECT_EQ(fake_gpu_count("bytes_to_device"), 32);
}

TEST(FakeGpu, CopiesThatNobodyWaitedForAreNotThereYet) {
  const auto x = at::ones({4}, kGpu);
  auto here = at::zeros({4}).pin_memory();
  here.copy_(x, /*non_blocking=*/true);
  EXPECT_TRUE(here.isnan().all().item<bool>());
  x.sum().item();
  EXPECT_EQ(here.sum().item<float>(), 4);

  x.copy_(here, /*non_blocking=*/true);
  here.zero_();
  EXPECT_THROW(x.sum().item(), c10::Error);
  x.copy_(here, /*non_blocking=*/true);
  EXPECT_EQ(x.sum().item<float>(), 0);
}

TEST(FakeGpu, RefusesKernelsWhoseBitsChangeWhereTheyMustRepeat) {
  const auto x = at::ones({4}, kGpu);
  x.cumsum(0);
  at::globalContext().setDeterministicAlgorithms(true, false);
  EXPECT_THROW(x.cumsum(0), c10::Error);
  EXPECT_THROW(at::mm(at::ones({3, 3}, kGpu), at::ones({3, 3}, kGpu)), c10::Error);
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST(FakeGpu, MemoryIsCountedInBlocksAndNotWritten) {
  fake_gpu_reset();
  const int64_t before = fake_gpu_count("bytes");
  {
    const auto x = at::empty({129}, kGpu);
    EXPECT_EQ(fake_gpu_count("bytes") - before, 1024);
    EXPECT_TRUE(x.isnan().all().item<bool>());
  }
  EXPECT_EQ(fake_gpu_count("bytes"), before);
  EXPECT_GE(fake_gpu_count("peak_bytes") - before, 1024);
}

}  // namespace
