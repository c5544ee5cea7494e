// In a program of its own, on the stand-in for a GPU: with it every test of a process would see a device.
#include "hanji/train/device_batches.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "hanji/compute/dropout.h"
#include "hanji/data/batch.h"
#include "hanji/layout/flat.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/test/gpu/counts.h"

namespace hanji::train {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);
const data::SampleShape kShape{.inputs = {5}, .targets = {5}};

layers::Batch numbered(int64_t first, data::Memory memory) {
  layers::Batch batch;
  data::shape_batch(kShape, {first, first + 3}, batch, memory);
  batch.inputs.copy_(at::arange(15).view({3, 5}) + first);
  batch.targets.copy_(batch.inputs + 1);
  return batch;
}

std::vector<layers::Batch> step_of_two(int64_t first, data::Memory memory = data::Memory::kPinned) {
  return {numbered(first, memory), numbered(first + 3, memory)};
}

TEST(DeviceBatches, AreThoseOfTheHostOnTheDevice) {
  DeviceBatches batches(kGpu);
  const std::vector<layers::Batch> given = step_of_two(7);
  batches.begin(given);
  EXPECT_TRUE(batches.has_begun());
  const std::vector<layers::Batch> taken = batches.take();
  EXPECT_FALSE(batches.has_begun());
  ASSERT_EQ(taken.size(), 2U);
  for (size_t i = 0; i < taken.size(); ++i) {
    EXPECT_EQ(taken[i].inputs.device(), kGpu);
    EXPECT_TRUE(at::equal(taken[i].inputs.cpu(), given[i].inputs));
    EXPECT_TRUE(at::equal(taken[i].targets.cpu(), given[i].targets));
    EXPECT_EQ(taken[i].positions, given[i].positions);
    EXPECT_EQ(taken[i].num_valid, 15);
  }
  EXPECT_EQ(batches.bytes_of_step(), 2 * 2 * 15 * 8);
}

TEST(DeviceBatches, KeepTheirValuesWhenTheHostReadsTheNextOnesIntoItsMemory) {
  DeviceBatches batches(kGpu);
  std::vector<layers::Batch> host = step_of_two(0);
  batches.begin(host);
  const std::vector<layers::Batch> first = batches.take();
  batches.wait_copied();
  for (layers::Batch& one : host) one.inputs.add_(100);
  batches.begin(host);
  EXPECT_TRUE(at::equal(batches.take()[0].inputs.cpu(), first[0].inputs.cpu() + 100));
  EXPECT_TRUE(at::equal(first[0].inputs.cpu(), numbered(0, data::Memory::kPageable).inputs));
}

TEST(DeviceBatches, FromPinnedMemoryTheHostDoesNotWaitForThem) {
  DeviceBatches batches(kGpu);
  const auto pinned = step_of_two(0), pageable = step_of_two(0, data::Memory::kPageable);
  EXPECT_TRUE(pinned[0].inputs.is_pinned());
  fake_gpu_reset();
  batches.begin(pinned);
  batches.take();
  EXPECT_EQ(fake_gpu_count("synchronizations"), 0);
  batches.begin(pageable);
  EXPECT_GT(fake_gpu_count("synchronizations"), 0);
}

TEST(DropoutOnADevice, HasTheBitsOfTheHostAndDoesNotWait) {
  for (const compute::DropoutKey& key :
       {compute::DropoutKey{5, 7, 10, 2, {}}, {5, 7, 10, 2, {-1, 3, 40}}}) {
    const at::TensorOptions host(at::kBFloat16);
    const auto expected = compute::dropout_mask({3, 9, 33}, 0.3, key, host);
    fake_gpu_reset();
    const auto found = compute::dropout_mask({3, 9, 33}, 0.3, key, host.device(kGpu));
    EXPECT_EQ(fake_gpu_count("synchronizations"), 0);
    EXPECT_TRUE(at::equal(found.cpu(), expected));
  }
}

/// A sum of n squares in float64 is off by at most n roundings, in any order.
TEST(NormOnADevice, IsThatOfTheHostReadOnce) {
  const layout::FlatLayout layout{{0, 64, 1088, 1088}, {3, 1000, 0, 77}, 1216};
  const at::Tensor flat = at::arange(layout.count, at::kFloat).sin();
  const double expected = parallel::grad_norm(flat, layout);
  const at::Tensor there = flat.to(kGpu);
  fake_gpu_reset();
  EXPECT_NEAR(parallel::grad_norm(there, layout), expected, 1080 * 0x1p-53 * expected);
  EXPECT_EQ(fake_gpu_count("synchronizations"), 1);
}

}  // namespace
}  // namespace hanji::train
